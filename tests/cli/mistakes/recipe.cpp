// Recipes with a planted mistake, for mistakes_test.cpp: `--plant.mistake=NAME` picks it. Without it all recipes train.
//   mistakes   a classifier of eight numbers: three classes, 24 samples, 16 for validation, in memory or in .npy files of
//   data.dir waves      signals: waves.cpp grouped    two data sets of unlike width, one objective of two terms
// A mistake in an Entry comes before any config: the variable MISTAKE_IN_ENTRY picks it.
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "planted.h"

namespace mistakes {
namespace {

using namespace millrace;

constexpr std::int64_t kClasses = 3, kWidth = 8, kTrain = 24, kHeldOut = 16;

struct NetConfig {
  std::vector<std::int64_t> widths = {8};
  double dropout = 0.0;
  std::int64_t heads = 1;
  static consteval auto fields() {
    using C = NetConfig;
    using config::field;
    return std::tuple{field<&C::widths>("Units of the layers.").not_empty().min(1),
                      field<&C::dropout>("Share of the units that are left out.").min(0).below(1),
                      field<&C::heads>("Heads; the last width is a multiple of them.").min(1)};
  }
};

struct Sections {
  NetConfig net;
  PlantConfig plant;
  static consteval auto fields() {
    return std::tuple{config::field<&Sections::net>("The network."), config::field<&Sections::plant>("What is wrong.")};
  }
};

struct OptimConfig {
  double learning_rate = 0.1;
  static consteval auto fields() { return std::tuple{config::field<&OptimConfig::learning_rate>("Ours has it already.")}; }
};

struct ClashingSections {
  OptimConfig optim;
  static consteval auto fields() { return std::tuple{config::field<&ClashingSections::optim>("A shared name.")}; }
};

struct Arrays {
  std::vector<float> x;
  std::vector<std::int64_t> label;
};

// The class of a sample is which of its first three numbers is the largest.
Arrays arrays(std::int64_t seed, std::int64_t size) {
  Arrays made;
  for (std::int64_t i = 0; i < size; ++i) {
    Philox random(make_key(seed, i));
    std::array<float, kWidth> x{};
    for (float& value : x) value = static_cast<float>(random.normal());
    made.x.insert(made.x.end(), x.begin(), x.end());
    made.label.push_back(std::max_element(x.begin(), x.begin() + kClasses) - x.begin());
  }
  return made;
}

// A source of the author's own, with the mistakes that only such a source can have.
class OwnSource final : public data::Source {
 public:
  explicit OwnSource(std::string mistake) : mistake_(std::move(mistake)) {
    fields_ = {{"x", DType::f32, {kWidth}}, {"label", DType::i64, {}}};
    if (mistake_ == "own_source_negative_field") fields_[0].shape = {-8};
    if (mistake_ == "own_source_empty_field") fields_[0].shape = {0};
    if (mistake_ == "own_source_field_twice") fields_[1].name = "x";
    if (mistake_ == "own_source_no_fields") fields_.clear();
  }
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return mistake_ == "own_source_negative_size" ? -1 : kTrain; }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    if (mistake_ == "own_source_throws") throw std::runtime_error("the detector's calibration is missing");
    if (mistake_ == "own_source_throws_a_number") throw 7;  // NOLINT(hicpp-exception-baseclass)
    if (mistake_ == "own_source_refuses_a_sample" && std::ranges::find(indices, 5) != indices.end())
      throw DataError({"the picture is black", "night.fits", "leave it out"});
    for (std::size_t i = 0; i < indices.size() && !fields_.empty(); ++i) {
      auto* x = reinterpret_cast<float*>(rows.row(0, i, fields_[0].bytes()));
      const std::int64_t wide = fields_[0].shape[0];
      for (std::int64_t k = 0; k < wide; ++k) x[k] = static_cast<float>(draws() ? random(i).normal() : 0.1);
      if (fields_.size() > 1 && fields_[1].dtype == DType::i64 && fields_[1].name == "label")
        *reinterpret_cast<std::int64_t*>(rows.row(1, i, 8)) = indices[i] % kClasses;
    }
  }
  [[nodiscard]] std::string fingerprint() const override { return "own"; }
  [[nodiscard]] data::Keeps keeps() const override {
    if (mistake_ == "keeps_parts_without_bytes") return data::Keeps::parts;
    return draws() ? data::Keeps::rows : data::Keeps::nothing;
  }

 private:
  [[nodiscard]] bool draws() const { return mistake_ == "keeps_rows_and_draws"; }
  std::string mistake_;
  std::vector<Field> fields_;
};

struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t inputs, const std::vector<std::int64_t>& widths) {
    for (const std::int64_t width : widths) {
      hidden->push_back(torch::nn::Linear(inputs, width));
      hidden->push_back(torch::nn::ReLU());
      inputs = width;
    }
    register_module("hidden", hidden);
    output = register_module("output", torch::nn::Linear(inputs, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) { return output(hidden->forward(x)); }
  torch::nn::Sequential hidden;
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Net);

class Mistakes final : public Recipe {
 public:
  Mistakes(const Sections& sections, const Context& context)
      : mistake_(sections.plant.mistake), context_(context), net_(plants("layer_too_narrow") ? 7 : kWidth, sections.net.widths) {
    if (plants("constructor_throws")) throw std::out_of_range("stoi");
    if (plants("constructor_throws_a_text")) throw "no such option";  // NOLINT(hicpp-exception-baseclass)
    if (plants("unused_layer")) net_->register_module("spare", torch::nn::Linear(2, 2));
    if (mistake_.starts_with("layer_outside_the_model")) head_ = torch::nn::Linear(kClasses, kClasses);
    if (plants("layer_outside_the_model_mended")) net_->register_module("head", head_);
    if (mistake_.starts_with("convolution_outside_the_model")) filter_ = torch::nn::Conv1d(1, 1, 3);
    if (plants("convolution_outside_the_model_mended")) net_->register_module("filter", filter_);
    if (mistake_.starts_with("noise_outside_the_model")) stray_ = at::randn({kClasses});
    if (plants("noise_outside_the_model_mended")) stray_ = net_->register_buffer("noise", stray_);
    if (plants("all_frozen"))
      for (at::Tensor& parameter : net_->parameters()) parameter.set_requires_grad(false);
  }

  static std::vector<Problem> problems(const Sections& sections, const RunConfig&) {
    const NetConfig& net = sections.net;
    if (net.widths.back() % net.heads == 0) return {};
    return {{"net.widths ends in " + std::to_string(net.widths.back()) + ", which " + std::to_string(net.heads) +
                 " heads do not divide",
             "net.heads", "choose a divisor"}};
  }

  void before_training() override {
    if (plants("before_training_throws")) throw std::runtime_error("the catalogue is not sorted");
  }

  data::Pipeline data(Split split) override {
    const bool training = split == Split::train;
    if (plants("no_training_data")) return {};
    if (!training && plants("no_validation")) return {};
    if (plants("null_source")) return data::single(nullptr);
    if (plants("two_data_sets_one_name")) return {.datasets = {{"a", memory(true)}, {"a", memory(true)}}};
    if (mistake_.starts_with("own_source") || mistake_.starts_with("keeps_"))
      return data::single(std::make_shared<OwnSource>(mistake_));
    if (plants("data_throws")) throw std::runtime_error("the archive is locked");
    if (mistake_.starts_with("generate_")) return data::single(generated());
    if (!context_.config->data.dir.empty()) return data::single(files(context_.config->data.dir, training));
    return data::single(memory(training));
  }

  Batch prepare(Batch batch) override {
    if (plants("prepare_throws")) throw std::invalid_argument("the noise table has 7 columns");
    if (plants("prepare_drops_rows")) batch.set("x", batch["x"].narrow(0, 0, 4));
    if (plants("prepare_gives_nothing")) batch.set("x", at::Tensor());
    if (plants("prepare_asks_for_a_wrong_field")) batch.set("x", batch["X"] * 2);
    return batch;
  }

  torch::nn::Module& model() override {
    if (plants("model_is_made_anew")) anew_.push_back(Net(kWidth, std::vector<std::int64_t>{8}));
    return anew_.empty() ? *net_ : *anew_.back();
  }

  std::vector<Objective> objectives() override {
    Objective main{.name = "main", .optim = context_.config->optim, .loss = {}};
    if (plants("rows_against_rows_mended")) main.whole_batch = "each row is compared with all others";
    main.loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); };
    if (plants("no_objective")) return {};
    if (plants("null_loss")) main.loss = nullptr;
    if (plants("foreign_parameter")) {
      stray_ = at::ones({3}).set_requires_grad(true);
      main.parameters = {{.parameters = {{"stray", stray_}}}};
    }
    if (plants("two_objectives_one_name") || plants("a_parameter_of_two_objectives")) {
      Objective other = main;
      if (plants("a_parameter_of_two_objectives")) other.name = "other";
      return {main, other};
    }
    return {main};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    const at::Tensor logits = result.outputs().at(plants("missing_output") ? "logit" : "logits");
    if (plants("metric_is_a_matrix")) board.add("sure", logits, at::ones({}));
    if (plants("metric_of_two_kinds")) board.add_mean("sure", logits);
    if (plants("metric_of_two_kinds")) board.add_log("sure", logits.exp().sum(), at::ones({}));
    if (plants("rate_of_numbers")) board.add_rate("sure", logits);
    if (plants("measure_throws")) throw std::logic_error("an empty histogram");
    if (plants("metric_named_as_the_loss")) board.add_correlation("val_main", logits, logits);
    if (plants("regression_of_unlike_shapes")) board.add_regression(logits, batch["label"]);
    metrics::Classification how;
    if (plants("too_few_class_names")) how.classes = {"cat", "dog"};
    if (plants("metrics_share_a_name")) board.add_mean("accuracy", logits);
    board.add_classification(logits, plants("labels_float_in_measure") ? batch["label"].to(at::kFloat) : batch["label"], how);
  }

  std::vector<Picture> draw() override {
    if (plants("draw_throws")) throw std::runtime_error("nothing was kept to draw");
    Picture picture{.name = "dots", .width = 2, .height = 2, .rgb = std::vector<std::uint8_t>(12)};
    if (plants("picture_too_small")) picture.rgb.resize(3);
    if (plants("picture_with_a_slash")) picture.name = "../dots";
    if (plants("picture_without_a_name")) picture.name.clear();
    if (plants("picture_twice")) return {picture, picture};
    return {picture};
  }

  Facts facts() const override {
    Facts facts{.history = {"accuracy"}};
    if (plants("history_typo")) facts.history = {"acuracy"};
    if (plants("history_twice")) facts.history = {"accuracy", "accuracy"};
    if (plants("rate_of_no_units")) facts.units_per_sample = 0;
    return facts;
  }

  std::vector<std::string> samples(std::int64_t) override {
    if (plants("samples_throw")) throw std::runtime_error("no such word");
    return {};
  }

  State state() const override {
    if (plants("state_throws")) throw std::runtime_error("the table was never filled");
    return {.tensors = {{"centre", at::zeros({3})}}};
  }
  void load_state(const State& state) override {
    (void)state.tensors.at(plants("load_state_asks_for_another_name") ? "center" : "centre");
  }

  Tensors predict(const Tensors& inputs) override {
    const at::Tensor x = inputs.at(plants("predict_asks_for_a_wrong_name") ? "X" : "x");
    if (plants("predict_throws_a_number")) throw 3;  // NOLINT(hicpp-exception-baseclass)
    const at::Tensor logits = net_->forward(x.to(at::kFloat));
    if (plants("predict_gives_fewer_rows")) return {{"label", logits.argmax(1).narrow(0, 0, 1)}};
    if (plants("predict_gives_another_name")) return {{"class", logits.argmax(1)}};
    if (plants("predict_gives_another_dtype")) return {{"label", logits.argmax(1).to(at::kFloat)}};
    if (plants("predict_gives_another_shape")) return {{"label", logits.to(at::kLong)}};
    return {{"label", logits.argmax(1)}};
  }

 private:
  [[nodiscard]] bool plants(std::string_view name) const { return mistake_ == name; }

  [[nodiscard]] std::shared_ptr<const data::Source> memory(bool training) const {
    const std::int64_t size = training ? kTrain : kHeldOut;
    Arrays made = arrays(training ? 1 : 2, size);
    if (!training && plants("empty_validation")) made = {};
    if (plants("label_out_of_range")) made.label[7] = 10;
    if (!training && plants("label_out_of_range_in_validation")) made.label[2] = -1;
    if (plants("not_a_number_in_the_data")) made.x[5 * kWidth] = std::numeric_limits<float>::quiet_NaN();
    if (plants("arrays_of_unlike_length")) made.label.pop_back();
    data::MemoryArray x = data::memory_array("x", {kWidth}, std::move(made.x));
    if (plants("labels_i32")) {
      std::vector<std::int32_t> narrow(made.label.begin(), made.label.end());
      return std::make_shared<data::MemorySource>(std::vector{x, data::memory_array("label", {}, std::move(narrow))});
    }
    const Shape shape = plants("labels_in_a_column") || plants("column_of_labels_flattened_in_the_loss") ? Shape{1} : Shape{};
    return std::make_shared<data::MemorySource>(std::vector{x, data::memory_array("label", shape, std::move(made.label))});
  }

  [[nodiscard]] static std::shared_ptr<const data::Source> files(const std::string& dir, bool training) {
    const std::filesystem::path folder = dir;
    const std::string stem = training ? "train_" : "val_";
    return std::make_shared<data::NpySource>(
        std::vector<data::NpyField>{{"x", folder / (stem + "x.npy")}, {"label", folder / (stem + "label.npy")}});
  }

  [[nodiscard]] std::shared_ptr<const data::Source> generated() const {
    const auto make = [mistake = mistake_](std::int64_t index, const data::MutableSample& out, const data::SampleRandom&) {
      if (mistake == "generate_throws" && index == 5) throw std::runtime_error("no table for this angle");
      if (mistake == "generate_writes_another_type") out.values<double>("x")[0] = 1;
      if (mistake == "generate_writes_a_wrong_field") out.values<float>("y")[0] = 1;
      std::ranges::fill(out.values<float>("x"), static_cast<float>(index));
      out.values<std::int64_t>("label")[0] = index % kClasses;
    };
    return data::generate("numbers", kTrain, {{"x", DType::f32, {kWidth}}, {"label", DType::i64, {}}}, make);
  }

  [[nodiscard]] at::Tensor smoothed(const at::Tensor& x) {
    return x + at::constant_pad_nd(filter_(x.unsqueeze(1)), {1, 1}).squeeze(1);
  }

  // Sums and counts that do not add up when a batch is cut, and what their messages advise instead.
  void plant_in_sums(LossTerm& term, const at::Tensor& logits, const at::Tensor& x) {
    const at::Tensor score = logits.select(1, 0), goal = x.narrow(1, 0, 1);
    const auto set = [&](const at::Tensor& sum, std::int64_t count) {
      term.sum = sum;
      term.count = at::full({}, static_cast<double>(count));
    };
    if (mistake_.starts_with("shapes_that_broadcast")) {
      const bool mended = mistake_.ends_with("_mended");
      const at::Tensor error = (score - (mended ? goal.squeeze(1) : goal)).square();
      set(error.sum(), mistake_.starts_with("shapes_that_broadcast_counted") ? error.numel() : score.size(0));
    }
    const at::Tensor square = (score - goal.squeeze(1)).square();
    if (plants("mean_with_count_one")) set(square.mean(), 1);
    if (plants("mean_with_the_count_of_a_sum")) set(square.mean(), square.numel());
    if (plants("batch_axis_averaged")) set(((score + x.select(1, 1)).mean(0) - goal.squeeze(1)).square().sum(), square.numel());
    const bool mended = plants("batch_axis_averaged_mended") || plants("every_other_row_mended") ||
                        plants("mean_with_count_one_mended") || plants("mean_with_the_count_of_a_sum_mended");
    if (mended) set(square.sum(), square.numel());
    if (plants("every_other_row")) set(square.slice(0, 0, square.size(0), 2).sum(), (square.size(0) + 1) / 2);
    if (mistake_.starts_with("rows_against_rows")) set((logits.matmul(logits.t()) - 1).square().mean(1).sum(), square.numel());
  }

  std::optional<Loss> loss(const Batch& batch, const StepContext& context) {
    if (plants("always_absent")) return std::nullopt;
    if (plants("own_exception")) throw std::runtime_error("radius is negative");
    if (plants("throws_a_number")) throw 42;                  // NOLINT(hicpp-exception-baseclass)
    if (plants("throws_a_text")) throw "radius is negative";  // NOLINT(hicpp-exception-baseclass)
    if (plants("throws_after_a_while") && context.training && context.step == 4) throw std::runtime_error("radius is negative");
    std::optional<at::NoGradGuard> no_grad;
    if (plants("no_gradient_guard")) no_grad.emplace();
    const at::Tensor& x = batch[plants("field_typo") ? "X" : "x"];
    at::Tensor logits = net_->forward(mistake_.starts_with("convolution_outside") ? smoothed(x) : x);
    if (!head_.is_empty()) logits = head_(logits);
    if (mistake_.starts_with("noise_outside_the_model")) logits = logits + stray_;
    if (plants("in_place_on_a_saved_tensor")) {
      const at::Tensor hidden = logits.exp();
      logits = hidden * hidden;
      hidden.add_(1);
    }
    at::Tensor label = batch["label"];
    if (plants("column_of_labels_flattened_in_the_loss")) label = label.flatten();
    LossTerm term = nn::CrossEntropy()(logits, label);
    plant_in_sums(term, logits, x);
    if (plants("no_gradient_detach")) term.sum = term.sum.detach();
    if (plants("no_gradient_item")) term.sum = at::full({}, term.sum.item<double>());
    if (plants("sum_is_no_scalar")) term.sum = logits;
    if (plants("count_is_missing")) term.count = at::Tensor();
    if (plants("sum_is_missing")) term.sum = at::Tensor();
    if (plants("count_is_zero")) term.count = at::zeros({});
    if (plants("count_is_negative")) term.count = -term.count;
    if (plants("count_is_no_scalar")) term.count = at::ones({8});
    if (plants("loss_is_not_a_number")) term.sum = term.sum * std::numeric_limits<double>::quiet_NaN();
    if (plants("nominal_count_is_zero")) term.nominal_count = 0;
    if (plants("no_terms")) return Loss{};
    if (plants("two_terms_one_name")) return Loss{.terms = {term, term}, .outputs = {{"logits", logits}}};
    if (plants("output_is_missing_a_tensor")) return Loss{.terms = {term}, .outputs = {{"logits", at::Tensor()}}};
    return Loss{.terms = {term}, .outputs = {{"logits", logits}}};
  }

  std::string mistake_;
  Context context_;
  Net net_;
  std::vector<Net> anew_;
  torch::nn::Linear head_{nullptr};
  torch::nn::Conv1d filter_{nullptr};
  at::Tensor stray_;
};

// Two data sets, `left` of 4 numbers and `right` of 6, and one number to learn from both.
class Grouped final : public Recipe {
 public:
  Grouped(const Sections& sections, const Context& context) : mistake_(sections.plant.mistake), context_(context) {
    left_ = net_->register_module("left", torch::nn::Linear(4, 1));
    right_ = net_->register_module("right", torch::nn::Linear(6, 1));
  }

  data::Pipeline data(Split split) override {
    const std::int64_t size = split == Split::train ? kTrain : kHeldOut;
    const bool bad = mistake_ == "bad_target_of_a_group" && split == Split::train;
    data::Pipeline pipeline{.datasets = {{"left", values(4, size, false)}, {"right", values(6, size / 2, bad)}}};
    if (mistake_ == "two_groups_one_name") pipeline.datasets[1].name = "left";
    if (mistake_ == "group_batch_size_zero") pipeline.datasets[1].batch_size = 0;
    if (mistake_ == "group_weights_of_wrong_length") {
      pipeline.grouping = data::Grouping::mix;
      pipeline.datasets[0].weights = [](std::uint64_t) { return std::vector<float>(3, 1.0F); };
    }
    return pipeline;
  }

  torch::nn::Module& model() override { return *net_; }

  std::vector<Objective> objectives() override {
    const bool says_so = mistake_ == "mean_of_an_empty_group";
    return {{.optim = context_.config->optim,
             .loss =
                 [this](const Batch& batch, const StepContext&) {
                   Loss loss;
                   if (mistake_ == "field_of_a_grouped_batch") return Loss{.outputs = {{"x", batch["x"]}}};
                   for (const Group& group : batch.groups()) {
                     torch::nn::Linear& layer = group.name == "left" || mistake_ == "layer_of_another_group" ? left_ : right_;
                     const at::Tensor predicted = layer(group.fields.at("x"));
                     const at::Tensor target = group.fields.at(mistake_ == "group_field_typo" ? "z" : "y");
                     for (std::int64_t row = 0; row < group.rows(); ++row) {
                       if (target[row].item<float>() < 0)
                         throw RowError({"the target is negative", "", "leave it out"}, row, group.name);
                     }
                     LossTerm term =
                         nn::mean_squared_error(predicted, mistake_ == "target_of_another_shape" ? target.flatten() : target);
                     if (mistake_.starts_with("mean_of_a")) term.sum = (predicted - target).square().mean();
                     term.name = group.name;
                     loss.terms.push_back(term);
                   }
                   return loss;
                 },
             .whole_batch = says_so ? "a mean is a mean" : ""}};
  }

 private:
  [[nodiscard]] static std::shared_ptr<const data::Source> values(std::int64_t width, std::int64_t size, bool bad) {
    std::vector<float> x(static_cast<std::size_t>(width * size), 0.5F);
    std::vector<float> y(static_cast<std::size_t>(size), 1.0F);
    if (bad) y[3] = -1.0F;
    return std::make_shared<data::MemorySource>(
        std::vector{data::memory_array("x", {width}, std::move(x)), data::memory_array("y", {1}, std::move(y))});
  }

  std::string mistake_;
  Context context_;
  std::shared_ptr<torch::nn::Module> net_ = std::make_shared<torch::nn::Module>();
  torch::nn::Linear left_{nullptr}, right_{nullptr};
};

std::vector<Entry> entries() {
  Entry mistakes = entry_of<Mistakes, Sections>("mistakes", "A classifier with a mistake in it.");
  const Json small = {{"data.batch_size", 8}, {"train.epochs", 2}, {"device.threads", 1}, {"log.every", 1}};
  mistakes.defaults = small;
  mistakes.presets = {{"smoke", {{"train.epochs", 1}}}};
  mistakes.predicts = {.inputs = {{"x", DType::f32, "[rows,8]", "numbers"}},
                       .outputs = {{"label", DType::i64, "[rows]", "class"}}};
  Entry grouped = entry_of<Grouped, Sections>("grouped", "Two data sets with a mistake in them.");
  grouped.defaults = small;
  const char* given = std::getenv("MISTAKE_IN_ENTRY");
  const std::string mistake = given == nullptr ? "" : given;
  if (mistake == "default_of_no_key") mistakes.defaults["optim.lerning_rate"] = 0.1;
  if (mistake == "default_of_wrong_type") mistakes.defaults["data.batch_size"] = "many";
  if (mistake == "preset_of_no_key") mistakes.presets[0].second["trian.epochs"] = 3;
  if (mistake == "alias_of_no_key") mistakes.aliases = {{"bs", "data.batchsize", nullptr, ""}};
  if (mistake == "section_of_a_shared_name") mistakes.sections = config::schema_of<ClashingSections>();
  if (mistake == "two_entries_one_name") grouped.name = "mistakes";
  if (mistake == "entry_without_make") mistakes.make = nullptr;
  if (mistake == "entry_without_a_name") mistakes.name.clear();
  if (mistake == "entry_makes_nothing") mistakes.make = [](const Json&, const Context&) { return std::unique_ptr<Recipe>(); };
  if (mistake == "problems_throw") mistakes.problems = [](const Json&) -> std::vector<Problem> { throw std::logic_error("odd"); };
  return {mistakes, grouped, waves_entry()};
}

}  // namespace
}  // namespace mistakes

int main(int argc, char** argv) {
  const std::vector<millrace::Entry> recipes = mistakes::entries();
  return millrace::cli_main(argc, argv, recipes);
}
