// What the parts of the network share: its shape, the switches of its own, and how many parameters it has.
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

// On: one forward pass of the core over all rows of all sessions, adapters before it and readouts after it per session; off: one
// forward pass of everything per session, as VisionCore. Equal within tolerance.
inline constexpr nn::Switch kJoinedCore{"joined_core"};
// On: what no output depends on is not computed: frames that the shortcut crops away, the reset gate, behaviour's maps pixel by
// pixel, the same frame once per tap of a kernel that reaches before the first frame. Off: all of it, layer by layer. Equal
// within tolerance.
inline constexpr nn::Switch kNeededOnly{"needed_only"};

[[nodiscard]] ModelConfig model_config_of(const RecipeConfig& recipe, std::int64_t lags, std::int64_t behavior_dim);

// What no network can have: more lags in a filter than there are, a stage that leaves no pixel, a predictor (pc) with fewer than
// two frames or other channels than the features.
[[nodiscard]] std::vector<Problem> shape_problems(const ModelConfig& config);

// Parameters of a model with sessions of so many units: a closed form, of any size, before anything is allocated.
[[nodiscard]] double parameters_of(const ModelConfig& config, std::span<const std::int64_t> units);

// Neither adapter, nor frontend, nor convnet: features are ones, (N, 1, 1, 1, 1), and behaviour alone speaks.
[[nodiscard]] bool is_modulator_only(const ModelConfig& config);
// Channels that the core gives to the modulator, and the modulator to the readouts.
[[nodiscard]] std::int64_t feature_channels(const ModelConfig& config);
[[nodiscard]] std::int64_t readout_channels(const ModelConfig& config);

// Frames of the features, and pixels of a side of them (of `side` pixels before the frontend); below 1: none are left.
[[nodiscard]] std::int64_t feature_frames(const ModelConfig& config);
[[nodiscard]] std::int64_t feature_side(const ModelConfig& config, std::int64_t side);
// Whether a stage's shortcut is a convolution of its own, and the channels within the gate of its pooling.
[[nodiscard]] bool has_projection(const StageConfig& stage, std::int64_t in);
[[nodiscard]] std::int64_t gate_width(const StageConfig& stage);

// What is not to lose digits: fp32 where x has a shorter type. Tests give fp64, which stays.
[[nodiscard]] at::ScalarType wide_type(const at::Tensor& x);
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A module that only holds others, so that names become those of VisionCore.
struct Holder : torch::nn::Module {
  // `child` under a dotted name: "main_block.components.conv.conv" makes the holders between.
  void put(const std::string& path, std::shared_ptr<torch::nn::Module> child);
};

// Weight and perhaps bias under torch's names: uniform within 1 / sqrt(fan in), as torch's linear layers and convolutions begin.
struct Weights : torch::nn::Module {
  Weights(std::vector<std::int64_t> shape, bool with_bias);
  void initialise(at::Generator& generator);
  at::Tensor weight;
  at::Tensor bias;  // undefined without
};

}  // namespace millrace::recipes::neural_response
