// A digital twin of visual cortex: an adapter and a readout for each recording session, and a core that all sessions share
// (frontend, convnet, modulator). Parameters carry VisionCore's names, so that safetensors move both ways.
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

// Rows of a batch that belong to one session; there may be zero rows.
struct Rows {
  std::size_t session = 0;
  at::Tensor stim;      // (N, 1, L, H, W) float, lags in the model's order
  at::Tensor behavior;  // (N, B) float
  // The position of each row in the epoch's order (Group::positions), so that a row's dropout does not depend on the rest of the
  // batch; needed only in training, empty if unknown.
  std::span<const std::int64_t> positions;
};

struct Predicted {
  // One per Rows, (N, units) fp32: logarithms of rates, at least -20; with an output activation, rates of at least 1e-8.
  std::vector<at::Tensor> rates;
  // For modulator pc in training: the mean of the squared prediction error, an fp32 scalar per Rows (0 without rows); else empty.
  std::vector<at::Tensor> error_square_mean;
  std::int64_t forwards = 0;  // number of the core's forward passes
};

class DigitalTwin : public torch::nn::Module {
 public:
  // Weights are a function of `seed`. ConfigError if the sizes do not fit together: the frontend's filters are longer than the
  // lags, a predictor (pc) with fewer than two frames or other channels than the features', behaviour without variables.
  DigitalTwin(const ModelConfig& config, std::vector<SessionShape> sessions, std::uint64_t seed = 0, const nn::Fused& fused = {});

  // Memory blocks: convnet.layers.0 and so on, modulator. Parameters of a session without rows get no gradient.
  Predicted forward(std::span<const Rows> batch);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const std::vector<SessionShape>& sessions() const noexcept { return sessions_; }
  [[nodiscard]] std::vector<std::string> core_parameters() const;  // frontend, convnet, modulator
  [[nodiscard]] std::vector<std::string> head_parameters() const;  // adapters, readouts
  // The memory order of the core's tensors.
  void set_channels_last(bool channels_last) noexcept { channels_last_ = channels_last; }
  // A session's spatial masks (units, H, W), for pictures; undefined if the readout is linear.
  [[nodiscard]] at::Tensor masks(std::size_t session, std::int64_t height, std::int64_t width) const;

 private:
  struct Shared {             // the core's output for some rows
    at::Tensor features;      // (N, C, H, W)
    at::Tensor error_square;  // (N), or undefined
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
