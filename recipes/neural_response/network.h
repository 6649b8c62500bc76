// The network as a whole: its shape, its own switches, and its number of parameters.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/nn/functional.h"
#include "millrace/nn/stencil.h"
#include "recipes/neural_response/config.h"

namespace millrace::recipes::neural_response {

struct ModelConfig {
  AdapterConfig adapter;
  FrontendConfig frontend;
  ConvnetConfig convnet;
  ModulatorConfig modulator;
  ReadoutConfig readout;
  Activation output_activation = Activation::none;
  LagOrder lag_order = LagOrder::oldest_first;
  std::int64_t lags = 25;
  std::int64_t behavior_dim = 42;
};

// On: one forward pass of the core over all rows of all sessions, with adapters before and readouts after it per session; off:
// one forward pass of everything per session, as in VisionCore. Equal within tolerance.
inline constexpr nn::Switch kJoinedCore{"joined_core"};
// On: values that no output depends on are not computed: frames that the shortcut crops away, the reset gate, behaviour's maps
// pixel by pixel, the same frame once per tap of a kernel that reaches before the first frame. Off: everything, layer by layer.
// Equal within tolerance.
inline constexpr nn::Switch kNeededOnly{"needed_only"};

[[nodiscard]] ModelConfig model_config_of(const RecipeConfig& recipe, std::int64_t lags, std::int64_t behavior_dim);

// Faults that no network can have: a filter longer than the lags, a stage that leaves no pixel, a predictor (pc) with fewer than
// two frames or other channels than the features.
[[nodiscard]] std::vector<Problem> shape_problems(const ModelConfig& config);

// Number of parameters of a model whose sessions have these units: a closed form for any size, without allocating anything.
[[nodiscard]] double parameters_of(const ModelConfig& config, std::span<const std::int64_t> units);

// Whether there is no adapter, frontend or convnet: features are ones, (N, 1, 1, 1, 1), and only behaviour has an effect.
[[nodiscard]] bool is_modulator_only(const ModelConfig& config);
// Number of channels from the core to the modulator, and from the modulator to the readouts.
[[nodiscard]] std::int64_t feature_channels(const ModelConfig& config);
[[nodiscard]] std::int64_t readout_channels(const ModelConfig& config);

// Frames of the features, and pixels per side (for `side` pixels before the frontend); a value below 1 is an impossible network.
[[nodiscard]] std::int64_t feature_frames(const ModelConfig& config);
[[nodiscard]] std::int64_t feature_side(const ModelConfig& config, std::int64_t side);
// Whether a stage's shortcut is a separate convolution, and the channels within the gate of its pooling.
[[nodiscard]] bool has_projection(const StageConfig& stage, std::int64_t in);
[[nodiscard]] std::int64_t gate_width(const StageConfig& stage);

// The type for precise computation: fp32 if x has a shorter type. Tests use fp64, which stays.
[[nodiscard]] at::ScalarType wide_type(const at::Tensor& x);
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A module that only holds others, so that names equal VisionCore's.
struct Holder : torch::nn::Module {
  // Adds `child` under a dotted name: "main_block.components.conv.conv" makes the holders between.
  void put(const std::string& path, std::shared_ptr<torch::nn::Module> child);
};

// Weight and optional bias under torch's names: uniform within 1 / sqrt(fan in), torch's initialisation of linear layers and
// convolutions.
struct Weights : torch::nn::Module {
  Weights(std::vector<std::int64_t> shape, bool with_bias);
  void initialise(at::Generator& generator);
  at::Tensor weight;
  at::Tensor bias;  // undefined if there is no bias
};

}  // namespace millrace::recipes::neural_response
