// A model's parameters and buffers by name, as snapshots and safetensors files hold them.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"
#include "millrace/train/stepper.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// {"model": everything} for one objective; for several "model.<objective>" has that objective's parameters, "model" the rest.
[[nodiscard]] std::map<std::string, Tensors> model_tensors(const torch::nn::Module& model, const Stepper& stepper);

// Copies values in by name, dtype converted. SnapshotError lists what is missing, left over or of another shape.
void load_model_tensors(torch::nn::Module& model, const std::map<std::string, Tensors>& models);

}  // namespace millrace
