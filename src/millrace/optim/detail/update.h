// One update of many tensors that share settings: ATen's fused kernels, and the same arithmetic as a loop of single operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/optim/config.h"

namespace millrace::optim::detail {

// Tensors of the parameters in a step, index by index; all of one dtype and on one device.
struct Lists {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;   // exp_avg or momentum_buffer; empty for sgd without momentum
  std::vector<at::Tensor> second;  // exp_avg_sq; empty for sgd
  std::vector<at::Tensor> steps;   // f32 scalars that already count this step
};

// Scalars on the device. Gradients are divided by `scale`; found_inf = 1 means that nothing changes.
struct Scalars {
  at::Tensor learning_rate;
  at::Tensor scale;
  at::Tensor found_inf;
};

// Both read no device value on the host.
void update_fused(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars);
void update_plain(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars);

// The type in which fused kernels read the learning rate.
[[nodiscard]] at::ScalarType learning_rate_dtype(const at::Device& device);

}  // namespace millrace::optim::detail
