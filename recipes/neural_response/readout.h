// Computes the outputs of a session's units from the features of the last frame.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

struct SessionShape {
  std::string name;
  std::int64_t units = 0;
  std::vector<float> mean_counts;  // mean spikes in a bin for each unit, for the initial biases; may be empty
};

class Readout : public torch::nn::Module {
 public:
  // Turns features (N, C, H, W) into (N, units) fp32.
  virtual at::Tensor forward(const at::Tensor& features) = 0;
  virtual void initialise(at::Generator& generator) = 0;
  // The weights of each unit over a frame, (units, H, W); the weights of a unit sum to 1. Undefined for a readout without masks.
  [[nodiscard]] virtual at::Tensor masks(std::int64_t height, std::int64_t width) const = 0;
};

[[nodiscard]] std::shared_ptr<Readout> make_readout(const ReadoutConfig& config, std::int64_t channels,
                                                    const SessionShape& session);

}  // namespace millrace::recipes::neural_response
