// The effect of behaviour on the core's features: the last part that all sessions share.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

struct Modulated {
  at::Tensor features;      // (N, C, H, W): input of the readouts, one frame
  at::Tensor error_square;  // (N) fp32: each row's mean squared prediction error; pc in training only, else undefined
};

class Modulator : public torch::nn::Module {
 public:
  // features (N, T, C, H, W), behavior (N, B).
  virtual Modulated forward(const at::Tensor& features, const at::Tensor& behavior) = 0;
  // Whether the result depends only on the last frame of the features.
  [[nodiscard]] virtual bool reads_last_frame_only() const = 0;
  virtual void initialise(at::Generator& generator) = 0;
};

// nullptr for type none. `channels` is the number of the features' channels.
[[nodiscard]] std::shared_ptr<Modulator> make_modulator(const ModulatorConfig& config, std::int64_t channels,
                                                        std::int64_t behavior_dim, const nn::Fused& fused);

}  // namespace millrace::recipes::neural_response
