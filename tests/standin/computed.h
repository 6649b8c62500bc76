// Operations of their own entries (entries.cpp) that compute: on aliases now, or in a recording at each replay.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace millrace::standin {

// From CPU tensors to new CPU tensors; an undefined one is a result that nobody asked for. It may be called again much later.
using Compute = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Launches the operation on the device of `inputs[0]`; what is computed from them becomes tensors of the device.
[[nodiscard]] std::vector<at::Tensor> computed(const std::string& name, const std::vector<at::Tensor>& inputs,
                                               const Compute& compute);

}  // namespace millrace::standin
