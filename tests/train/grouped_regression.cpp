// Toy recipe: regression over three data sets of different shapes, a shared trunk and one head each.
#include <ATen/ops/dropout.h>
#include <ATen/ops/randn_like.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/config/schema_of.h"
#include "millrace/core/random.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/nn/functional.h"
#include "toys.h"

namespace millrace::toys {

std::function<void(const char* point)> at_point;

namespace {

constexpr std::array<std::int64_t, 3> kWidths = {3, 5, 8};
constexpr std::int64_t kHidden = 6;

void reach(const char* point) {
  if (at_point) at_point(point);
}

struct ToyConfig {
  double noise = 0.1;
  double dropout = 0.0;
  double drawn = 0.0;
  std::int64_t rows = 41;
  std::int64_t bad_from = -1;
  std::int64_t bad_steps = 1;
  std::int64_t nan_until = 0;
  std::int64_t unreadable = 0;
  bool frozen = false;
  double clamp = 0.0;
  double brought = 1.0;
  static consteval auto fields() {
    using C = ToyConfig;
    return std::tuple{config::field<&C::noise>("Noise of the targets.").min(0),
                      config::field<&C::dropout>("Dropout of the trunk.").min(0).below(1),
                      config::field<&C::drawn>("LibTorch's own dropout, and its noise on the input.").min(0).below(1),
                      config::field<&C::rows>("Rows of each data set.").min(1),
                      config::field<&C::bad_from>("First step whose loss is NaN; -1 = none."),
                      config::field<&C::bad_steps>("How many steps from there have a NaN loss.").min(0),
                      config::field<&C::nan_until>("Validations before this step have a NaN loss.").min(0),
                      config::field<&C::unreadable>("Every so manieth row can't be read; 0 = none.").min(0),
                      config::field<&C::clamp>("After each step no weight of the trunk is larger than this; 0 = off.").min(0),
                      config::field<&C::frozen>("The input layers are not trained."),
                      config::field<&C::brought>("Factor of the weights that the recipe brings for them.").free_on_resume()};
  }
};

struct Sections {
  ToyConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&Sections::toy>("The toy.")}; }
};

// Passes reads on and reports them, as a slow disk would be noticed.
class WatchedSource final : public data::Source {
 public:
  WatchedSource(std::vector<data::MemoryArray> arrays, std::int64_t unreadable)
      : inner_(std::move(arrays)), unreadable_(unreadable) {}
  [[nodiscard]] std::span<const Field> fields() const override { return inner_.fields(); }
  [[nodiscard]] std::int64_t size() const override { return inner_.size(); }
  [[nodiscard]] std::string fingerprint() const override { return inner_.fingerprint(); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return inner_.samples_per_ticket(); }
  [[nodiscard]] data::Keeps keeps() const override { return data::Keeps::rows; }
  void read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const override {
    reach("read");
    for (const std::int64_t index : indices) {
      if (unreadable_ > 0 && index % unreadable_ == 0)
        throw DataError({"the row can't be read", "row " + std::to_string(index), "set data.bad_samples=skip"});
    }
    inner_.read(indices, rows, random);
  }

 private:
  data::MemorySource inner_;
  std::int64_t unreadable_;
};

struct TrunkAndHeadsImpl : torch::nn::Module {
  TrunkAndHeadsImpl() {
    for (std::size_t i = 0; i < kWidths.size(); ++i) {
      inputs.push_back(register_module("input" + std::to_string(i), torch::nn::Linear(kWidths[i], kHidden)));
      heads.push_back(register_module("head" + std::to_string(i), torch::nn::Linear(kHidden, 1)));
    }
    trunk = register_module("trunk", torch::nn::Linear(kHidden, kHidden));
  }
  std::vector<torch::nn::Linear> inputs;
  std::vector<torch::nn::Linear> heads;
  torch::nn::Linear trunk{nullptr};
};

class GroupedRegression final : public Recipe {
 public:
  GroupedRegression(const Sections& sections, const Context& context) : toy_(sections.toy), optim_(context.config->optim) {
    if (!toy_.frozen) return;
    const at::NoGradGuard no_grad;
    for (auto& layer : net_->inputs) {
      for (at::Tensor& parameter : layer->parameters()) parameter.mul_(toy_.brought).requires_grad_(false);
    }
  }

  ~GroupedRegression() override { reach("end"); }
  GroupedRegression(const GroupedRegression&) = delete;
  GroupedRegression& operator=(const GroupedRegression&) = delete;

  data::Pipeline data(Split split) override {
    data::Pipeline pipeline;
    for (std::size_t i = 0; i < kWidths.size(); ++i) {
      Philox random(make_key(11, i, split == Split::train ? 0 : 1));
      std::vector<float> x;
      std::vector<float> y;
      for (std::int64_t row = 0; row < toy_.rows; ++row) {
        double sum = 0;
        for (std::int64_t k = 0; k < kWidths[i]; ++k) {
          x.push_back(static_cast<float>(random.normal()));
          sum += x.back() * (k % 2 == 0 ? 0.5 : -0.25);
        }
        y.push_back(static_cast<float>(sum + static_cast<double>(i) + toy_.noise * random.normal()));
      }
      pipeline.datasets.push_back({"set" + std::to_string(i), std::make_shared<WatchedSource>(
                                                                  std::vector{data::memory_array("x", {kWidths[i]}, std::move(x)),
                                                                              data::memory_array("y", {1}, std::move(y))},
                                                                  toy_.unreadable)});
    }
    return pipeline;
  }

  Batch prepare(Batch batch) override {
    if (toy_.drawn <= 0) return batch;
    for (Group& group : batch.groups()) {
      at::Tensor& x = group.fields.at("x");
      x = x + at::randn_like(x) * toy_.drawn;
    }
    return batch;
  }

  torch::nn::Module& model() override { return *net_; }
  Facts facts() const override { return {.frozen_source = toy_.frozen ? "the toy" : ""}; }

  std::vector<Objective> objectives() override {
    Objective objective{.optim = optim_,
                        .loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); }};
    if (toy_.clamp > 0)
      objective.after_update = [this](const StepContext&) {
        reach("update");
        net_->trunk->weight.clamp_(-toy_.clamp, toy_.clamp);
      };
    return {std::move(objective)};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    reach("measure");
    const at::Tensor error = result.outputs().at("absolute_error");
    board.add("absolute_error", error, at::full({}, static_cast<double>(batch.rows())));
    if (batch.split() == Split::validation) rows_ += batch.rows();
  }
  void begin_validation() override {
    reach("validation");
    rows_ = 0;
  }
  [[nodiscard]] State state() const override {
    reach("state");
    return {};
  }
  std::vector<TextTable> tables() override {
    return {{.name = "rows", .columns = {"what", "rows"}, .rows = {{"validated", std::to_string(rows_)}}}};
  }

 private:
  Loss loss(const Batch& batch, const StepContext& context) {
    reach("loss");
    at::Tensor sum;
    at::Tensor absolute;
    for (std::size_t i = 0; i < batch.groups().size(); ++i) {
      const Tensors& fields = batch.groups()[i].fields;
      at::Tensor hidden = at::tanh(net_->inputs[i](fields.at("x")));
      if (toy_.drawn > 0) hidden = at::dropout(hidden, toy_.drawn, true);  // in a validation too
      const RowScope of_group(batch.groups()[i].positions);
      const at::Tensor mixed = nn::dropout(at::tanh(net_->trunk(hidden)), context.training ? toy_.dropout : 0.0, {});
      const at::Tensor error = net_->heads[i](mixed) - fields.at("y");
      const at::Tensor squares = error.square().sum();
      sum = sum.defined() ? sum + squares : squares;
      const at::Tensor total = error.abs().sum();
      absolute = absolute.defined() ? absolute + total : total;
    }
    const bool bad = toy_.bad_from >= 0 && context.step >= toy_.bad_from && context.step < toy_.bad_from + toy_.bad_steps;
    if (context.training && bad) sum = sum * std::numeric_limits<double>::quiet_NaN();
    if (!context.training && context.step < toy_.nan_until) sum = sum * std::numeric_limits<double>::quiet_NaN();
    return {.terms = {{.sum = sum, .count = at::full({}, static_cast<double>(batch.rows())), .nominal_count = 8.0}},
            .outputs = {{"absolute_error", absolute}}};
  }

  ToyConfig toy_;
  std::int64_t rows_ = 0;
  optim::OptimConfig optim_;
  std::shared_ptr<TrunkAndHeadsImpl> net_ = std::make_shared<TrunkAndHeadsImpl>();
};

}  // namespace

Entry grouped_regression() {
  Entry entry = entry_of<GroupedRegression, Sections>("grouped_regression", "A toy.");
  entry.defaults = {{"data.batch_size", 4}, {"optim.learning_rate", 0.02}, {"optim.weight_decay", 0.0},
                    {"train.epochs", 3},    {"precision.dtype", "fp32"},   {"device.threads", 1}};
  return entry;
}

}  // namespace millrace::toys
