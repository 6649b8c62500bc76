// The part of the vision core that all sessions share: filters over time, and residual stages.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

// Filters over time, the same for every pixel: (N, 1, T, H, W) -> (N, C, T - K + 1, H, W).
class Frontend : public torch::nn::Module {
 public:
  Frontend(const FrontendConfig& config, LagOrder order, const nn::StencilPaths& paths);
  at::Tensor forward(const at::Tensor& x) const;
  // A Gaussian, its first and second derivative, and noise under the Gaussian, each of unit norm; turned round in time where
  // lags come newest first.
  void initialise(at::Generator& generator);

 private:
  LagOrder order_;
  nn::StencilPaths paths_;
  std::shared_ptr<Weights> temporal_conv_;
};

// A residual stage: convolution, RMS norm, SiLU, dropout, blurred soft pooling times a gate; a 1x1x1 convolution around them (the
// identity where no stride and no change of channels asks for one). The sum has the last frames and the centre of both.
class Stage : public torch::nn::Module {
 public:
  Stage(const StageConfig& config, std::int64_t in, const ModelPaths& paths);

  // (N, in, T, H, W) -> (N, channels, T', H', W'): the last `frames` of the frames that the stage gives, 0 = all of them.
  at::Tensor forward(const at::Tensor& x, std::int64_t frames);
  void initialise(at::Generator& generator);

 private:
  [[nodiscard]] at::Tensor convolved(const at::Tensor& x, std::int64_t frames) const;
  [[nodiscard]] at::Tensor skipped(const at::Tensor& x, std::int64_t frames) const;
  [[nodiscard]] at::Tensor gate(const at::Tensor& pooled) const;

  StageConfig config_;
  ModelPaths paths_;
  std::shared_ptr<Weights> conv_, squeeze_, excite_, shortcut_;  // the last three: nullptr where there is none
};

// The stages, and an activation after the last.
class Convnet : public torch::nn::Module {
 public:
  Convnet(const ConvnetConfig& config, std::int64_t in, const ModelPaths& paths);

  // (N, in, T, H, W) -> (N, C, T', H', W'); T' = 1, the last frame, where `last_frame_only`. Memory blocks:
  // convnet.layers.0 and so on.
  at::Tensor forward(const at::Tensor& x, bool last_frame_only);
  void initialise(at::Generator& generator);

 private:
  Activation final_activation_;
  std::vector<std::shared_ptr<Stage>> stages_;
};

}  // namespace millrace::recipes::neural_response
