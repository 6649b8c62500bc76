// The layers that all sessions share: filters over time, and residual stages.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/MemoryFormat.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "recipes/neural_response/network.h"

namespace millrace::recipes::neural_response {

// Filters over time, the same for every pixel. Turns (N, 1, T, H, W) into (N, C, T - K + 1, H, W).
class Frontend : public torch::nn::Module {
 public:
  Frontend(const FrontendConfig& config, LagOrder order, const nn::Fused& fused);
  at::Tensor forward(const at::Tensor& x) const;
  // Sets the filters to a Gaussian, its first and second derivative, and noise under the Gaussian, each with norm 1. If lags are
  // ordered from newest to oldest, the filters are reversed in time.
  void initialise(at::Generator& generator);

 private:
  LagOrder order_;
  nn::Fused fused_;
  std::shared_ptr<Weights> temporal_conv_;
};

// A residual stage: convolution, RMS norm, SiLU, dropout, and blurred soft pooling times a gate. A shortcut goes around them: a
// 1x1x1 convolution, or the identity if there is neither a stride nor a change of channels. The two results are added where both
// have values: in the last frames, and at the centre of these frames.
//
// The core's tensors are frames (N, T, C, H, W), so that the frames of all rows form a batch of images without a copy. In memory
// the channels of a frame come first, or last with channels_last.
class Stage : public torch::nn::Module {
 public:
  Stage(const StageConfig& config, std::int64_t in, const nn::Fused& fused);

  // Turns (N, T, in, H, W) into (N, T', channels, H', W'), which are the last `frames` of the stage's output frames; 0 = all
  // frames.
  at::Tensor forward(const at::Tensor& x, std::int64_t frames, bool channels_last);
  void initialise(at::Generator& generator);

 private:
  [[nodiscard]] at::Tensor convolved(const at::Tensor& x, std::int64_t frames, at::MemoryFormat format);
  [[nodiscard]] at::Tensor windows(const at::Tensor& x, std::int64_t outputs, std::int64_t frames);
  [[nodiscard]] at::Tensor skipped(const at::Tensor& x, std::int64_t frames) const;
  [[nodiscard]] at::Tensor gate(const at::Tensor& pooled) const;

  StageConfig config_;
  nn::Fused fused_;
  std::shared_ptr<Weights> conv_, squeeze_, excite_, shortcut_;  // squeeze_, excite_ and shortcut_ may be null
  std::vector<std::int64_t> sources_;                            // the values of index_, on the host
  at::Tensor index_;                                             // the frames that the last call of windows() took
};

// All stages, followed by an activation.
class Convnet : public torch::nn::Module {
 public:
  Convnet(const ConvnetConfig& config, std::int64_t in, const nn::Fused& fused);

  // Turns (N, T, in, H, W) into (N, T', C, H', W'); if `last_frame_only`, T' = 1. The memory blocks (memory/block.h) are
  // convnet.layers.0 and so on.
  at::Tensor forward(const at::Tensor& x, bool last_frame_only, bool channels_last);
  void initialise(at::Generator& generator);

 private:
  Activation final_activation_;
  std::vector<std::shared_ptr<Stage>> stages_;
};

// The frames of all rows as a batch of images, (N T, C, H, W). A copy is made only if `x` is a part of another tensor.
[[nodiscard]] at::Tensor images_of(const at::Tensor& x);

// The pixels along a side of the core's last frame, for a stimulus with `side` pixels; see StageConfig.
[[nodiscard]] std::int64_t side_of_last_frame(const ModelConfig& config, std::int64_t side);

}  // namespace millrace::recipes::neural_response
