// The last layer that all sessions share: it lets behaviour change the core's features.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

struct Modulated {
  at::Tensor features;      // (N, C, H, W): a frame, the input of the readouts
  at::Tensor error_square;  // (N) fp32: the mean squared prediction error of each row; undefined except for pc in training
};

class Modulator : public torch::nn::Module {
 public:
  // features is (N, T, C, H, W), behavior is (N, B).
  virtual Modulated forward(const at::Tensor& features, const at::Tensor& behavior) = 0;
  // True if the result depends only on the last frame of the features.
  [[nodiscard]] virtual bool reads_last_frame_only() const = 0;
  virtual void initialise(at::Generator& generator) = 0;
};

// Makes the modulator; null for type none. `channels`: the number of channels of the features.
[[nodiscard]] std::shared_ptr<Modulator> make_modulator(const ModulatorConfig& config, std::int64_t channels,
                                                        std::int64_t behavior_dim, const nn::Fused& fused);

}  // namespace millrace::recipes::neural_response
