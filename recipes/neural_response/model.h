// A digital twin of visual cortex: each recording session has an adapter and a readout, and all sessions share a core (frontend,
// convnet, modulator). Parameters have the names that VisionCore (the program that this recipe follows) gives them, so that
// safetensors can be moved in both directions.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "recipes/neural_response/adapter.h"
#include "recipes/neural_response/core.h"
#include "recipes/neural_response/modulators.h"
#include "recipes/neural_response/network.h"
#include "recipes/neural_response/readout.h"

namespace millrace::recipes::neural_response {

// The rows of a batch that belong to one session; possibly none.
struct Rows {
  std::size_t session = 0;
  at::Tensor stim;      // (N, 1, L, H, W) float, with lags in the model's order
  at::Tensor behavior;  // (N, B) float
  // The position of each row in the epoch's order (Group::positions). With these positions the dropout of a row does not depend
  // on the other rows of the batch. Needed only in training; empty if unknown.
  std::span<const std::int64_t> positions;
};

struct Predicted {
  // For each session of the batch, (N, units) fp32: the logarithm of the rate, at least -20; with an output activation the rate
  // itself, at least 1e-8.
  std::vector<at::Tensor> rates;
  // For each session of the batch, the mean of the squared prediction error as an fp32 scalar; 0 without rows. Only for the
  // modulator pc in training, otherwise empty.
  std::vector<at::Tensor> error_square_mean;
  std::int64_t forwards = 0;  // number of forward passes of the core
};

class DigitalTwin : public torch::nn::Module {
 public:
  // The weights depend only on `seed`. Throws ConfigError if the sizes do not fit together: if filters of the frontend are
  // longer than the lags, if a predictor (pc) has fewer than two frames or another number of channels than the features, or if
  // the modulator needs behaviour and gets none.
  DigitalTwin(const ModelConfig& config, std::vector<SessionShape> sessions, std::uint64_t seed = 0, const nn::Fused& fused = {});

  // Predicts the rates. The memory blocks (memory/block.h) are convnet.layers.0 and so on, and modulator. Parameters of a
  // session without rows get no gradient.
  Predicted forward(std::span<const Rows> batch);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::vector<SessionShape>& sessions() const noexcept { return sessions_; }
  [[nodiscard]] std::vector<std::string> core_parameters() const;  // names of the parameters of frontend, convnet and modulator
  [[nodiscard]] std::vector<std::string> head_parameters() const;  // names of the parameters of adapters and readouts
  // Sets the order of the core's tensors in memory.
  void set_channels_last(bool channels_last) noexcept { channels_last_ = channels_last; }
  // The spatial masks (units, H, W) of a session, for pictures. Undefined if the readout is linear.
  [[nodiscard]] at::Tensor masks(std::size_t session, std::int64_t height, std::int64_t width) const;

 private:
  struct Shared {             // the core's results for some rows
    at::Tensor features;      // (N, C, H, W)
    at::Tensor error_square;  // (N); may be undefined
  };
  at::Tensor adapted(const Rows& rows);
  Shared core(const at::Tensor& stim, const at::Tensor& behavior);
  at::Tensor rates(std::size_t session, const at::Tensor& features);
  void read(const Rows& rows, const Shared& shared, std::int64_t first, Predicted& out);
  void joined(std::span<const Rows> batch, Predicted& out);
  void apart(std::span<const Rows> batch, Predicted& out);
  [[nodiscard]] std::vector<std::string> names_of(bool heads) const;

  ModelConfig config_;
  std::vector<SessionShape> sessions_;
  nn::Fused fused_;
  bool channels_last_ = false;
  std::vector<std::shared_ptr<Adapter>> adapters_;
  std::shared_ptr<Frontend> frontend_;
  std::shared_ptr<Convnet> convnet_;
  std::shared_ptr<Modulator> modulator_;
  std::vector<std::shared_ptr<Readout>> readouts_;
};

}  // namespace millrace::recipes::neural_response
