// The layer between the stimuli of a session and the core that all sessions share: a blur and a scale of the visual field, both
// learned.
#pragma once

#include <torch/nn/module.h>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

class Adapter : public torch::nn::Module {
 public:
  Adapter(const AdapterConfig& config, const nn::Fused& fused);

  // Turns x (N, 1, L, H, W) into (N, 1, L, G, G), where G = grid_size. The deviation of the blur is sqrt(smin^2 +
  // softplus(log_sigma)^2). smin = 0.44 (1/s - 1) for the smaller scale s < 1 prevents aliasing, because a scale below 1 skips
  // pixels.
  at::Tensor forward(const at::Tensor& x);

 private:
  AdapterConfig config_;
  nn::Fused fused_;
  at::Tensor log_sigma_;  // a scalar
  at::Tensor log_scale_;  // one for x and one for y
};

}  // namespace millrace::recipes::neural_response
