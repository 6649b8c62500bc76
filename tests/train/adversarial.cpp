// Toy recipe: an adversarial pair on 2-D points.
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "millrace/config/schema_of.h"
#include "millrace/data/sources/memory_source.h"
#include "toys.h"

namespace millrace::toys {
namespace {

struct ToyConfig {
  double mean_x = 2.0;
  double mean_y = -1.0;
  std::int64_t points = 256;
  std::int64_t discriminator_from = 0;
  static consteval auto fields() {
    using C = ToyConfig;
    return std::tuple{config::field<&C::mean_x>("Mean of the data."), config::field<&C::mean_y>("Mean of the data."),
                      config::field<&C::points>("How many points.").min(1),
                      config::field<&C::discriminator_from>("First epoch of the discriminator.").min(0)};
  }
};

struct Sections {
  ToyConfig toy;
  static consteval auto fields() { return std::tuple{config::field<&Sections::toy>("The toy.")}; }
};

struct PairImpl : torch::nn::Module {
  PairImpl() {
    generator = register_module("generator", torch::nn::Linear(2, 2));
    discriminator = register_module("discriminator",
                                    torch::nn::Sequential(torch::nn::Linear(2, 16), torch::nn::ReLU(), torch::nn::Linear(16, 1)));
  }
  torch::nn::Linear generator{nullptr};
  torch::nn::Sequential discriminator{nullptr};
};

class Adversarial final : public Recipe {
 public:
  Adversarial(const Sections& sections, const Context& context) : toy_(sections.toy), optim_(context.config->optim) {}

  data::Pipeline data(Split split) override {
    Philox random(make_key(7, split == Split::train ? 0 : 1));
    std::vector<float> points;
    std::vector<float> noise;
    for (std::int64_t i = 0; i < toy_.points; ++i) {
      points.push_back(static_cast<float>(toy_.mean_x + 0.5 * random.normal()));
      points.push_back(static_cast<float>(toy_.mean_y + 0.5 * random.normal()));
      noise.push_back(static_cast<float>(random.normal()));
      noise.push_back(static_cast<float>(random.normal()));
    }
    return data::single(std::make_shared<data::MemorySource>(
        std::vector{data::memory_array("point", {2}, std::move(points)), data::memory_array("noise", {2}, std::move(noise))}));
  }

  torch::nn::Module& model() override { return *pair_; }

  std::vector<Objective> objectives() override {
    Objective generator{.name = "generator", .parameters = {group("generator.")}, .optim = optim_, .loss = {}};
    generator.loss = [this](const Batch& batch, const StepContext&) {
      const at::Tensor fake = pair_->generator(batch["noise"]);
      const at::Tensor wrong = at::softplus(-pair_->discriminator->forward(fake)).sum();
      return Loss{.terms = {{.sum = wrong, .count = count(batch), .nominal_count = static_cast<double>(batch.rows())}},
                  .outputs = {{"fake", fake}}};
    };
    Objective discriminator{.name = "discriminator", .parameters = {group("discriminator.")}, .optim = optim_, .loss = {}};
    discriminator.loss = [this](const Batch& batch, const StepContext& context) -> std::optional<Loss> {
      if (context.training && context.epoch < static_cast<std::uint64_t>(toy_.discriminator_from)) return std::nullopt;
      const at::Tensor& fake = context.earlier->at("fake");
      const at::Tensor sum = at::softplus(pair_->discriminator->forward(fake)).sum() +
                             at::softplus(-pair_->discriminator->forward(batch["point"])).sum();
      return Loss{.terms = {{sum, count(batch), static_cast<double>(batch.rows())}}};
    };
    return {std::move(generator), std::move(discriminator)};
  }

  void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
    const at::Tensor gap = (result.outputs(0).at("fake").mean(0) - batch["point"].mean(0)).norm();
    board.add("mean_gap", gap * static_cast<double>(batch.rows()), count(batch));
  }

 private:
  optim::ParameterGroup group(const std::string& prefix) const {
    optim::ParameterGroup group;
    for (const auto& item : pair_->named_parameters()) {
      if (item.key().starts_with(prefix)) group.parameters.push_back({item.key(), item.value()});
    }
    return group;
  }
  static at::Tensor count(const Batch& batch) { return at::full({}, static_cast<double>(batch.rows())); }

  ToyConfig toy_;
  optim::OptimConfig optim_;
  std::shared_ptr<PairImpl> pair_ = std::make_shared<PairImpl>();
};

}  // namespace

Entry adversarial() {
  Entry entry = entry_of<Adversarial, Sections>("adversarial", "A toy.");
  entry.defaults = {{"data.batch_size", 64},  {"optim.learning_rate", 0.02}, {"optim.weight_decay", 0.0}, {"train.epochs", 0},
                    {"train.max_steps", 300}, {"precision.dtype", "fp32"},   {"optim.betas", {0.5, 0.9}}};
  return entry;
}

}  // namespace millrace::toys
