// Trains a module by a plain C++ call, for programs that have their own command line.
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
  RunConfig config;  // sections as in a config file; with run.dir "" the run has no folder and writes nothing
  std::optional<data::Pipeline> validation;
  bool print = true;  // true: prints plan, progress and summary on stdout
};

// Trains `module` in place and returns the content of summary.json. `loss` gets batches whose tensors are on the module's device.
Json train(torch::nn::Module& module, data::Pipeline pipeline, std::function<Loss(const Batch&)> loss, TrainOptions options = {});

}  // namespace millrace
