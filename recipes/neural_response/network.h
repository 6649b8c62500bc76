// The network as a whole: its sizes, its own switches, and its number of parameters.
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

// On: the core makes one forward pass over the rows of all sessions; adapters before it and readouts after it run for each
// session. Off: everything runs for each session, as in VisionCore (the program that this recipe follows). Results are equal
// within tolerance.
inline constexpr nn::Switch kJoinedCore{"joined_core"};
// On: leaves out computations whose results nothing uses: frames that the shortcut cuts off, the reset gate, maps of behaviour
// for each pixel, and the repeated products of a kernel that reaches before the first frame. Off: computes everything, layer by
// layer. Results are equal within tolerance.
inline constexpr nn::Switch kNeededOnly{"needed_only"};

[[nodiscard]] ModelConfig model_config_of(const RecipeConfig& recipe, std::int64_t lags, std::int64_t behavior_dim);

// Returns the faults that make a network impossible: a filter that is longer than the lags, a stage that leaves no pixel, a
// predictor (pc) with fewer than two frames or with another number of channels than the features.
[[nodiscard]] std::vector<Problem> shape_problems(const ModelConfig& config);

// The number of parameters of a model whose sessions have these numbers of units. Computed by a formula, so it works for any
// size and allocates nothing.
[[nodiscard]] double parameters_of(const ModelConfig& config, std::span<const std::int64_t> units);

// True if the network has no adapter, frontend and convnet. Features are then ones, (N, 1, 1, 1, 1), and only behaviour has an
// effect.
[[nodiscard]] bool is_modulator_only(const ModelConfig& config);
// The number of channels between core and modulator, and between modulator and readouts.
[[nodiscard]] std::int64_t feature_channels(const ModelConfig& config);
[[nodiscard]] std::int64_t readout_channels(const ModelConfig& config);

// feature_frames(): the number of frames of the features. feature_side(): the pixels along a side of such a frame if the
// frontend gets `side` pixels. A value below 1 means that the network is impossible.
[[nodiscard]] std::int64_t feature_frames(const ModelConfig& config);
[[nodiscard]] std::int64_t feature_side(const ModelConfig& config, std::int64_t side);
// has_projection(): true if the shortcut of a stage is a convolution. gate_width(): the number of channels inside the gate of its
// pooling.
[[nodiscard]] bool has_projection(const StageConfig& stage, std::int64_t in);
[[nodiscard]] std::int64_t gate_width(const StageConfig& stage);

// The type for precise computation: fp32, or the type of x if that is wider (tests use fp64).
[[nodiscard]] at::ScalarType wide_type(const at::Tensor& x);
[[nodiscard]] at::Tensor wide(const at::Tensor& x);

// A module that only holds other modules, so that parameters have VisionCore's names.
struct Holder : torch::nn::Module {
  // Adds `child` under a dotted name. For "main_block.components.conv.conv" this makes the holders "main_block", "components"
  // and "conv".
  void put(const std::string& path, std::shared_ptr<torch::nn::Module> child);
};

// A weight and an optional bias with torch's names. Initialised uniformly within 1 / sqrt(fan in), as torch initialises linear
// layers and convolutions.
struct Weights : torch::nn::Module {
  Weights(std::vector<std::int64_t> shape, bool with_bias);
  void initialise(at::Generator& generator);
  at::Tensor weight;
  at::Tensor bias;  // undefined if there is no bias
};

}  // namespace millrace::recipes::neural_response
