// Training as a plain C++ call, for people with their own program.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/source.h"
#include "millrace/optim/config.h"
#include "millrace/train/recipe/config.h"

namespace torch::nn {
class Module;
}

namespace millrace {

struct TrainOptions {
  RunConfig config;  // sections as in a config file; run.dir "" = no run folder: nothing is written
  std::optional<data::Pipeline> validation;
  bool print = true;  // plan, progress and summary on stdout
};

// Trains `module` in place and returns summary.json's content. `loss` gets batches whose tensors live on the module's device.
Json train(torch::nn::Module& module, data::Pipeline pipeline, std::function<Loss(const Batch&)> loss, TrainOptions options = {});

}  // namespace millrace
