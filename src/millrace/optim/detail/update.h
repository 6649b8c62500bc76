// Updates many tensors that share settings, with ATen's fused kernels, or with the same arithmetic as a loop of single
// operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/optim/config.h"

namespace millrace::optim::detail {

// The tensors of a step, with one entry for each parameter; all of one dtype and on one device.
struct Lists {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;   // exp_avg or momentum_buffer; empty for sgd without momentum
  std::vector<at::Tensor> second;  // exp_avg_sq; empty for sgd
  std::vector<at::Tensor> steps;   // f32 scalars, numbers of steps including the present step
};

// Scalars on the device. Gradients are divided by `scale`. If found_inf is 1, nothing changes.
struct Scalars {
  at::Tensor learning_rate;
  at::Tensor scale;
  at::Tensor found_inf;
};

// Update the parameters: update_fused() by ATen's fused kernels, update_plain() by single operations. Neither reads a device
// value on the host.
void update_fused(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars);
void update_plain(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars);

// The type in which fused kernels read the learning rate.
[[nodiscard]] at::ScalarType learning_rate_dtype(const at::Device& device);

}  // namespace millrace::optim::detail
