// A recipe of signals, as somebody writes it who comes from another framework: one channel of 16 values, which of two
// frequencies it has. `--plant.mistake=NAME` plants a mistake, NAME_mended is what its message advises.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>

#include "planted.h"

namespace mistakes {
namespace {

using namespace millrace;

constexpr std::int64_t kLength = 16, kClasses = 2, kTrain = 32, kHeldOut = 16;

struct Sections {
  PlantConfig plant;
  static consteval auto fields() { return std::tuple{config::field<&Sections::plant>("What is wrong.")}; }
};

void wave(std::int64_t index, std::span<float> x, std::int64_t& label, double noise) {
  label = index % kClasses;
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(std::sin((label == 0 ? 0.4 : 1.3) * static_cast<double>(i) + 0.1 * static_cast<double>(index)) +
                              noise);
}

// Each call gets memory of the one before, so that no compiler makes a loop of them.
[[gnu::noinline]] int calls_itself(const volatile int* goes_on, const volatile char* before) {
  std::array<volatile char, 4096> room{};
  room[0] = *before;
  return *goes_on == 0 ? 0 : calls_itself(goes_on, room.data()) + room[0];
}

// Reads samples as an author's own source does.
class Waves final : public data::Source {
 public:
  Waves(std::string mistake, std::int64_t size, std::int64_t first)
      : mistake_(std::move(mistake)), size_(size), first_(first), offsets_(static_cast<std::size_t>(size), 0.0F) {
    if (mistake_ == "source_counts_too_far") offsets_.pop_back();
  }
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t index = indices[i];
      if (mistake_ == "source_counts_too_far") static_cast<void>(offsets_.at(static_cast<std::size_t>(index)));
      if (mistake_ == "source_reads_nowhere" && index == size_ - 1) static_cast<void>(*nowhere_);
      if (mistake_ == "source_reads_nowhere_late" && index == kTrain - 1 && ++reads_ > 1) static_cast<void>(*nowhere_);
      if (mistake_ == "source_calls_itself" && index == kTrain - 1 && ++reads_ > 1) reads_ += calls_itself(&goes_on_, &nothing_);
      double noise = 0;
      if (mistake_ == "source_draws_by_itself") noise = static_cast<double>(std::random_device{}() % 100) / 100;
      if (mistake_ == "source_draws_by_itself_mended") noise = random(i).normal();
      auto* x = reinterpret_cast<float*>(rows.row(0, i, fields_[0].bytes()));
      wave(index + first_, {x, static_cast<std::size_t>(kLength)}, *reinterpret_cast<std::int64_t*>(rows.row(1, i, 8)), noise);
      if (mistake_.starts_with("prepare_divides_a_silent_sample") && index == 5) std::fill_n(x, kLength, 0.0F);
      if (mistake_ == "nan_in_a_sample" && index == 5) x[3] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  [[nodiscard]] std::string fingerprint() const override { return "waves from " + std::to_string(first_); }

 private:
  std::string mistake_;
  std::int64_t size_, first_;
  std::vector<float> offsets_;
  const volatile int* nowhere_ = nullptr;
  volatile int goes_on_ = 1;
  volatile char nothing_ = 0;
  mutable std::atomic<int> reads_ = 0;
  std::vector<Field> fields_ = {{"wave", DType::f32, {1, kLength}}, {"label", DType::i64, {}}};
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::string planted) : mistake(std::move(planted)) {
    convolution = register_module("convolution", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 4, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    if (mistake != "holder_is_empty") head = register_module("head", torch::nn::Linear(4, kClasses));
  }
  at::Tensor forward(at::Tensor x) {
    if (mistake == "batch_axis_is_lost") x = x[0];
    if (mistake.starts_with("double_into_a_float_net")) x = x.to(at::kDouble);
    if (mistake == "double_into_a_float_net_mended") x = x.to(at::kFloat);
    if (mistake == "channel_axis_is_lost") x = x.squeeze(1);
    at::Tensor y = convolution(x);
    if (holds) y = y.detach();
    if (mistake == "strided_views_into_ours") look_at_strided(y.transpose(1, 2));
    if (mistake == "tensor_of_cuda") y = y + at::zeros({4, 1}, at::TensorOptions(at::kCUDA));
    if (mistake == "tensor_of_cuda_mended") y = y + at::zeros({4, 1}, y.options());
    if (mistake == "view_of_a_transposed") y = y.transpose(1, 2).view({-1, 4, kLength});
    if (mistake == "view_of_a_transposed_mended") y = y.transpose(1, 2).reshape({-1, 4, kLength});
    if (mistake == "statistics_in_evaluation") {
      y = at::batch_norm(y, norm->weight, norm->bias, norm->running_mean, norm->running_var, true, 0.1, 1e-5, false);
    } else {
      y = norm(y);
    }
    y = at::relu(y).mean(2);
    if (mistake == "dropout_in_evaluation") y = at::dropout(y, 0.5, true);
    if (mistake == "dropout_in_evaluation_mended") y = at::dropout(y, 0.5, is_training());
    if (mistake == "layer_made_in_forward") {
      if (late.is_empty()) late = register_module("late", torch::nn::Linear(4, 4));
      y = late(y);
    }
    if (mistake == "holder_is_called_empty") return late(y);
    return head->forward(y);
  }
  // Our operations take strided tensors as they are.
  static void look_at_strided(const at::Tensor& x) {
    const at::Tensor dense = x.contiguous(), weight = at::ones({4}), bias = at::zeros({4});
    const at::Tensor q = x.unsqueeze(2), dense_q = dense.unsqueeze(2);
    const auto require_same = [](const char* what, const at::Tensor& a, const at::Tensor& b) {
      if (!a.allclose(b, 1e-4, 1e-5)) throw std::runtime_error(std::string(what) + " of a strided view is another one");
    };
    require_same("gelu", nn::gelu(x, nn::Gelu::tanh), nn::gelu(dense, nn::Gelu::tanh));
    require_same("layer_norm", nn::layer_norm(x, weight, bias, 1e-5, {}), at::layer_norm(dense, {4}, weight, bias));
    require_same("attention", nn::causal_attention(q, q, q, 0, {}), nn::causal_attention(dense_q, dense_q, dense_q, 0, {}));
  }
  std::string mistake;
  bool holds = false;  // the convolution does not learn yet
  torch::nn::Conv1d convolution{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear head{nullptr}, late{nullptr};
};
TORCH_MODULE(Net);

// A file that a fit writes and that must not stay.
struct PartOfAFit {
  PartOfAFit() { std::ofstream("fit.part") << "a part"; }
  ~PartOfAFit() { std::filesystem::remove("fit.part"); }
  PartOfAFit(const PartOfAFit&) = delete;
  PartOfAFit& operator=(const PartOfAFit&) = delete;
};

class WavesRecipe final : public Recipe {
 public:
  WavesRecipe(const Sections& sections, const Context& context)
      : mistake_(sections.plant.mistake),
        context_(context),
        net_(sections.plant.mistake),
        loss_(options(sections.plant.mistake)) {
    centre_ = at::zeros({1});
    if (plants("frozen_in_a_group") || plants("thawed_later")) net_->convolution->weight.set_requires_grad(false);
  }

  data::Pipeline data(Split split) override {
    const bool training = split == Split::train;
    if (plants("validation_is_the_training")) return data::single(std::make_shared<Waves>(mistake_, kTrain, 0));
    return data::single(std::make_shared<Waves>(mistake_, training ? kTrain : kHeldOut, training ? 0 : 1000));
  }

  Batch prepare(Batch batch) override {
    if (plants("prepare_draws_by_itself")) {
      static std::mt19937 generator(std::random_device{}());
      batch.set("wave", batch["wave"] + std::normal_distribution<double>()(generator));
    }
    if (plants("prepare_draws_by_itself_mended"))
      batch.set("wave",
                batch["wave"] + nn::normal_rows({.seed = 1, .epoch = batch.epoch(), .positions = batch.groups()[0].positions},
                                                {1, kLength}, batch["wave"].options()));
    const at::Tensor loudness = batch["wave"].abs().amax({1, 2}, /*keepdim=*/true);
    if (plants("prepare_divides_a_silent_sample")) batch.set("wave", batch["wave"] / loudness);
    if (plants("prepare_divides_a_silent_sample_mended")) batch.set("wave", batch["wave"] / loudness.clamp_min(1e-6));
    if (plants("prepare_divides_by_itself")) batch.set("wave", batch["wave"] / batch["wave"].sub(batch["wave"]));
    return batch;
  }

  void before_training() override {
    if (!plants("signal_in_a_long_fit")) return;
    const PartOfAFit part;
    std::raise(SIGTERM);
    for (;;) stop_if_signalled();
  }

  torch::nn::Module& model() override { return *net_; }

  std::vector<Objective> objectives() override {
    Objective main{.name = "main", .optim = context_.config->optim, .loss = {}};
    main.loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); };
    const auto named = [](const char* name, const at::Tensor& value) { return optim::NamedParameter{name, value}; };
    std::vector<optim::NamedParameter> head = {named("head.weight", net_->head.is_empty() ? at::Tensor() : net_->head->weight),
                                               named("head.bias", net_->head.is_empty() ? at::Tensor() : net_->head->bias)};
    std::vector<optim::NamedParameter> rest = {named("convolution.weight", net_->convolution->weight),
                                               named("convolution.bias", net_->convolution->bias),
                                               named("norm.weight", net_->norm->weight), named("norm.bias", net_->norm->bias)};
    if (plants("groups_that_overlap")) {
      rest.push_back(head.front());
      main.parameters = {{.parameters = head, .learning_rate_scale = 10}, {.parameters = rest}};
    }
    if (plants("parameters_in_no_group")) main.parameters = {{.parameters = head}};
    if (plants("frozen_in_a_group")) main.parameters = {{.parameters = head}, {.parameters = rest}};
    return {main};
  }

  void begin_validation() override {
    if (!plants("metric_never_reset")) right_ = seen_ = 0;
    if (plants("evaluation_mode_for_ever")) net_->eval();
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    const at::Tensor logits = result.outputs().at("logits");
    right_ += (logits.argmax(1) == batch["label"]).sum().item<std::int64_t>();
    seen_ += batch.rows();
    if (plants("metric_is_not_a_number")) board.add("sure", at::full({}, 0.0), at::full({}, 0.0));
    board.add_classification(logits, batch["label"]);
  }

  void end_validation(metrics::Board& board) override {
    board.add("own_accuracy", at::full({}, static_cast<double>(right_)), at::full({}, static_cast<double>(seen_)));
  }

  State state() const override { return {.tensors = {{"centre", centre_}}}; }
  void load_state(const State& state) override {
    if (!plants("state_is_never_loaded")) centre_ = state.tensors.at("centre").clone();
  }

 private:
  [[nodiscard]] bool plants(std::string_view name) const { return mistake_ == name; }

  static nn::CrossEntropyOptions options(const std::string& mistake) {
    if (mistake == "class_weights_of_wrong_length") return {.class_weights = {1, 2, 3}};
    if (mistake == "smoothing_of_soft_labels") return {.label_smoothing = 0.1};
    return {};
  }

  std::optional<Loss> loss(const Batch& batch, const StepContext& context) {
    if (context.training) centre_ = centre_ + 1;
    if (plants("batches_are_kept") && context.training) kept_.push_back(batch["wave"]);
    if (plants("batches_are_kept_mended") && context.training) kept_.push_back(batch["wave"].clone());
    if (plants("loss_changes_its_batch")) batch["wave"].mul_(2);
    if (plants("loss_aborts")) std::abort();
    if (plants("loss_quits")) std::raise(SIGQUIT);
    if (plants("loss_reads_nowhere") && context.training && context.step == 2) static_cast<void>(*nowhere_);
    if (plants("thawed_later") && context.training && context.step == 2) net_->convolution->weight.set_requires_grad(true);
    net_->holds = plants("thawed_later_mended") && context.training && context.step < 2;
    at::Tensor wave = batch["wave"];
    if (plants("loss_changes_its_batch_mended")) wave = wave * 2;
    at::Tensor logits = net_(wave);
    if (plants("softmax_before_the_loss")) logits = logits.softmax(1);
    at::Tensor label = batch["label"];
    if (mistake_.starts_with("smoothing_of_soft_labels")) label = at::one_hot(label, kClasses).to(at::kFloat);
    if (plants("smoothing_of_soft_labels_mended")) label = label.argmax(-1);
    if (plants("logits_are_transposed")) logits = logits.t();
    LossTerm term = loss_(logits, label);
    if (plants("loss_value_is_read")) values_.push_back(term.sum.item<double>());
    if (plants("mask_is_all_zero_in_validation") && !context.training) {
      term.sum = term.sum * 0;
      term.count = term.count * 0;
    }
    if (plants("outputs_are_missing")) return Loss{.terms = {term}};
    return Loss{.terms = {term}, .outputs = {{"logits", logits}}};
  }

  std::string mistake_;
  Context context_;
  Net net_;
  nn::CrossEntropy loss_;
  at::Tensor centre_;
  std::vector<at::Tensor> kept_;
  std::vector<double> values_;
  std::int64_t right_ = 0, seen_ = 0;
  const volatile int* nowhere_ = nullptr;
};

}  // namespace

Entry waves_entry() {
  Entry waves = entry_of<WavesRecipe, Sections>("waves", "Signals told apart, with a mistake in it.");
  waves.defaults = {{"data.batch_size", 8}, {"train.epochs", 2}, {"device.threads", 1}, {"log.every", 1}};
  return waves;
}

}  // namespace mistakes
