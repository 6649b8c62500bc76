#include "millrace/train/run/train.h"

#include <torch/nn/module.h>

#include "millrace/config/schema_of.h"
#include "millrace/train/run/session.h"

namespace millrace {
namespace {

// Makes a recipe of the caller's module and loss, so that train() runs the same loop as the command line.
class ModuleRecipe final : public Recipe {
 public:
  ModuleRecipe(torch::nn::Module& module, data::Pipeline training, std::optional<data::Pipeline> validation,
               std::function<Loss(const Batch&)> loss, optim::OptimConfig optim)
      : module_(module),
        training_(std::move(training)),
        validation_(std::move(validation)),
        loss_(std::move(loss)),
        optim_(std::move(optim)) {}

  data::Pipeline data(Split split) override { return split == Split::train ? training_ : validation_.value_or(data::Pipeline{}); }
  torch::nn::Module& model() override { return module_; }
  std::vector<Objective> objectives() override {
    Objective objective;
    objective.optim = optim_;
    objective.loss = [this](const Batch& batch, const StepContext&) { return loss_(batch); };
    return {std::move(objective)};
  }

 private:
  torch::nn::Module& module_;
  data::Pipeline training_;
  std::optional<data::Pipeline> validation_;
  std::function<Loss(const Batch&)> loss_;
  optim::OptimConfig optim_;
};

}  // namespace

Json train(torch::nn::Module& module, data::Pipeline pipeline, std::function<Loss(const Batch&)> loss, TrainOptions options) {
  telemetry::Console console(options.print ? telemetry::Console::Mode::automatic : telemetry::Console::Mode::quiet);
  Entry entry{.name = "train"};
  // The recipe gets copies, because the check of the first snapshot makes a second recipe.
  entry.make = [&](const Json&, const Context&) {
    return std::make_unique<ModuleRecipe>(module, pipeline, options.validation, loss, options.config.optim);
  };
  RunRequest request{.entry = &entry, .console = &console};
  request.config.values = config::write(options.config);
  return Session(std::move(request), {.folder = options.config.run.dir}).run().summary;
}

}  // namespace millrace
