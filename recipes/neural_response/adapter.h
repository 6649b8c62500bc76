// The part between a session's stimuli and the shared core: a blur and a scale of the visual field, both learned.
#pragma once

#include <torch/nn/module.h>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

class Adapter : public torch::nn::Module {
 public:
  Adapter(const AdapterConfig& config, const nn::Fused& fused);

  // x (N, 1, L, H, W) -> (N, 1, L, G, G), G = grid_size. The blur's deviation sqrt(smin^2 + softplus(log_sigma)^2), where smin =
  // 0.44 (1/s - 1) for the smaller scale s < 1, prevents aliasing of the samples that the scale skips.
  at::Tensor forward(const at::Tensor& x);

 private:
  AdapterConfig config_;
  nn::Fused fused_;
  at::Tensor log_sigma_;  // scalar
  at::Tensor log_scale_;  // for x and for y
};

}  // namespace millrace::recipes::neural_response
