#include "graph_toy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <limits>

#include "millrace/base/philox.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/nn/functional.h"

namespace millrace::standin {
namespace {

constexpr std::int64_t kWidth = 6, kHidden = 16, kOutputs = 3;
constexpr std::int64_t kLarge = (std::int64_t{1} << 18) + 1;  // elements of a buffer that is guarded by its counter alone

struct ToyConfig {
  std::string with;
  std::string planted;
  std::int64_t rows = 50;
  static consteval auto fields() {
    using C = ToyConfig;
    return std::tuple{config::field<&C::with>("Parts of the step: dropout, draws, norm, two, memory, weight, parts."),
                      config::field<&C::planted>("What a recording must find."),
                      config::field<&C::rows>("Rows for training.").min(1)};
  }
};

struct Sections {
  ToyConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&Sections::toy>("The toy.")}; }
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    body = register_module("body", torch::nn::Linear(kWidth, kHidden));
    norm = register_module("norm", torch::nn::BatchNorm1d(kHidden));
    head = register_module("head", torch::nn::Linear(kHidden, kOutputs));
    judge = register_module("judge", torch::nn::Linear(kOutputs, 1));
    memory = register_buffer("memory", at::zeros({kLarge}));
    Philox random(5);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters()) {
      auto* const values = parameter.mutable_data_ptr<float>();
      for (std::int64_t i = 0; i < parameter.numel(); ++i) values[i] = static_cast<float>(0.3 * random.normal());
    }
  }
  torch::nn::Linear body{nullptr}, head{nullptr}, judge{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor memory;  // a running sum that is larger than what is always guarded
};

class GraphToy final : public Recipe {
 public:
  GraphToy(const Sections& sections, const Context& context)
      : toy_(sections.toy), optim_(context.config->optim), device_(context.device) {}

  data::Pipeline data(Split split) override {
    Philox random(make_key(7, split == Split::train ? 0 : 1));
    const auto numbers = [&](std::int64_t rows, std::int64_t width) {
      std::vector<float> all(static_cast<std::size_t>(rows * width));
      for (float& each : all) each = static_cast<float>(random.normal());
      return all;
    };
    const std::int64_t rows = split == Split::train ? toy_.rows : 12;
    std::vector<data::MemoryArray> arrays;
    arrays.push_back(data::memory_array("x", {kWidth}, numbers(rows, kWidth)));
    arrays.push_back(data::memory_array("y", {kOutputs}, numbers(rows, kOutputs)));
    return data::single(std::make_shared<data::MemorySource>(std::move(arrays)));
  }

  NetImpl& model() override { return *net_; }

  Batch prepare(Batch batch) override {
    if (batch.split() != Split::train) return batch;
    ++prepared_;
    if (is("nan") && prepared_ >= 20 && prepared_ < 28) batch.set("x", batch["x"] * std::numeric_limits<double>::quiet_NaN());
    if (is("shapes")) {
      const std::int64_t rows = 2 + prepared_ % 5;
      batch.set("extra", batch["x"].repeat({rows, 1}));
    }
    if (is("on host")) batch.set("factor", at::full({batch.rows()}, 1.0 + static_cast<double>(prepared_)));
    return batch;
  }

  std::vector<Objective> objectives() override {
    Objective first{
        .name = "first", .parameters = group(has("two") ? std::string("judge") : std::string()), .optim = optim_, .loss = {}};
    first.loss = [this](const Batch& batch, const StepContext& context) { return loss(batch, context); };
    if (is("update")) {
      first.after_update = [this](const StepContext& context) {
        const at::NoGradGuard no_grad;
        net_->head->weight.mul_(1.0 - 1e-3 * static_cast<double>(static_cast<std::int64_t>(context.step)));
      };
    }
    std::vector<Objective> all = {std::move(first)};
    if (!has("two")) return all;
    Objective second{.name = "second", .parameters = group("body|head|norm"), .optim = optim_, .loss = {}};
    second.loss = [this](const Batch& batch, const StepContext& context) -> std::optional<Loss> {
      if (is("absent") && context.training && !context.epoch.is_above(2)) return std::nullopt;
      const at::Tensor error = net_->judge(context.earlier->at("out")) - batch["y"].sum(1, true);
      return Loss{.terms = {{error.square().sum(), count(batch), static_cast<double>(batch.rows())}}};
    };
    all.push_back(std::move(second));
    return all;
  }

 private:
  [[nodiscard]] bool is(std::string_view what) const { return toy_.planted == what; }
  [[nodiscard]] bool has(std::string_view what) const { return toy_.with.find(what) != std::string::npos; }

  // All parameters but those of the modules that are named.
  [[nodiscard]] std::vector<optim::ParameterGroup> group(const std::string& without) const {
    optim::ParameterGroup group;
    for (const auto& item : net_->named_parameters()) {
      const std::string part = item.key().substr(0, item.key().find('.'));
      if (without.find(part) == std::string::npos) group.parameters.push_back({item.key(), item.value()});
    }
    return {group};
  }

  at::Tensor count(const Batch& batch) const {
    return at::full({}, static_cast<double>(batch.rows()), at::TensorOptions(at::kFloat).device(device_));
  }

  std::optional<Loss> loss(const Batch& batch, const StepContext& context) {
    at::Tensor hidden = net_->body(batch["x"]);
    if (has("norm")) hidden = net_->norm(hidden);
    hidden = at::tanh(hidden);
    if (has("dropout") && context.training) hidden = nn::dropout(hidden, 0.25, {});
    if (has("draws")) hidden = at::dropout(hidden, 0.25, context.training);
    if (context.training && has("memory")) {
      const at::NoGradGuard no_grad;
      net_->memory.mul_(0.9).add_(hidden.detach().mean().to(at::kFloat));
      hidden = hidden + net_->memory[0];
    }
    const at::Tensor out = net_->head(hidden);
    at::Tensor error = out.to(at::kFloat) - batch["y"];
    if (has("parts") && batch.rows() == 8) error = error + 0.1 * net_->judge(out).to(at::kFloat);
    if (context.training) error = planted(error, batch, context);
    Loss result{.terms = {{error.square().sum(), count(batch), static_cast<double>(batch.rows())}}, .outputs = {{"out", out}}};
    if (has("weight")) {
      result.terms.front().weight_now =
          context.number([](std::int64_t step,
                            std::uint64_t epoch) { return 1.0 + 0.01 * static_cast<double>(step) + static_cast<double>(epoch); },
                         device_);
    }
    return result;
  }

  at::Tensor planted(const at::Tensor& error, const Batch& batch, const StepContext& context) {
    const auto number = static_cast<double>(prepared_);
    const auto options = at::TensorOptions(at::kFloat);
    if (is("step")) return error * (1.0 + 0.01 * static_cast<double>(static_cast<std::int64_t>(context.step)));
    if (is("epoch")) return error * (1.0 + 0.1 * static_cast<double>(static_cast<std::uint64_t>(context.epoch)));
    if (is("counter")) return error * (1.0 + 0.1 * number);
    if (is("gradient")) {  // the loss is what it was
      const at::Tensor& weight = net_->head->weight;
      return error + (weight - weight.detach()).sum() * number;
    }
    if (is("read")) return error * (error.sum().item<float>() > 0 ? 1.0 : 0.5);
    if (is("pageable")) return error + at::tensor({0.1F, 0.2F, 0.3F}).to(device_, /*non_blocking=*/true);
    if (is("host draws")) return error * (at::rand({1}, options).item<float>() > 0.5F ? 1.0 : 0.5);
    if (is("on host")) return error * batch["factor"][0].item<double>();
    return error;
  }

  ToyConfig toy_;
  optim::OptimConfig optim_;
  at::Device device_;
  std::shared_ptr<NetImpl> net_ = std::make_shared<NetImpl>();
  std::int64_t prepared_ = 0;  // batches for training
};

}  // namespace

Entry graph_toy() {
  Entry entry = entry_of<GraphToy, Sections>("graph_toy", "A toy.");
  entry.defaults = {{"data.batch_size", 8},      {"optim.learning_rate", 0.02}, {"train.epochs", 8},
                    {"precision.dtype", "fp32"}, {"device.name", "cuda:0"},     {"log.every", 1},
                    {"device.threads", 1}};
  return entry;
}

}  // namespace millrace::standin
