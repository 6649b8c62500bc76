#include "recipes/neural_response/network.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

namespace millrace::recipes::neural_response {
namespace {

double linear(double in, double out) { return in * out + out; }

double encoder_parameters(const EncoderConfig& encoder, double in) {
  double count = 0;
  for (const std::int64_t width : encoder.dims) {
    count += linear(in, static_cast<double>(width));
    in = static_cast<double>(width);
  }
  return count;
}

double modulator_parameters(const ModelConfig& config) {
  const ModulatorConfig& m = config.modulator;
  const auto channels = static_cast<double>(feature_channels(config));
  const auto behavior = static_cast<double>(config.behavior_dim), encoded = static_cast<double>(m.encoder_params.dims.back());
  const auto hidden = static_cast<double>(m.hidden_dim), embedded = static_cast<double>(m.beh_emb_dim);
  const auto taps = static_cast<double>(m.kernel_size) * static_cast<double>(m.kernel_size);
  const double gru = linear(behavior, embedded) + 3 * hidden * (taps * (channels + embedded + hidden) + 1);
  const double encoder = encoder_parameters(m.encoder_params, behavior);
  switch (m.type) {
    case ModulatorType::convgru:
      return gru + linear(hidden, hidden);
    case ModulatorType::pc:
      return gru;
    case ModulatorType::film:
      return encoder + 2 * linear(encoded, channels);
    case ModulatorType::concat:
      return encoder;
    case ModulatorType::stn:
      return encoder + linear(encoded, 6) + linear(encoded, channels);
    case ModulatorType::none:
      break;
  }
  return 0;
}

double convnet_parameters(const ConvnetConfig& convnet, std::int64_t in) {
  double count = 0;
  for (const StageConfig& stage : convnet.stages) {
    const auto from = static_cast<double>(in), to = static_cast<double>(stage.channels);
    double taps = 1;
    for (const std::int64_t size : stage.kernel_size) taps *= static_cast<double>(size);
    count += to * from * taps;
    const auto width = static_cast<double>(gate_width(stage));
    if (stage.pool_stride > 0) count += linear(to, width) + linear(width, to);
    if (has_projection(stage, in)) count += to * from;
    in = stage.channels;
  }
  return count;
}

std::int64_t frontend_channels(const ModelConfig& config) {
  return config.frontend.type == FrontendType::none ? 1 : config.frontend.num_channels;
}

std::int64_t total_stride(const StageConfig& stage) { return stage.stride * std::max<std::int64_t>(stage.pool_stride, 1); }

// The number of pixels along an axis after a stage.
std::int64_t side_after(const StageConfig& stage, std::int64_t side, std::size_t axis) {
  const std::int64_t reach = stage.dilation * (stage.kernel_size[axis] - 1);
  std::int64_t main = side + 2 * stage.padding[axis] - reach;
  if (side < 1 || main < 1) return 0;
  main = (main - 1) / stage.stride + 1;
  if (stage.pool_stride > 0) main = main < 2 ? 0 : (main - 2) / stage.pool_stride + 1;
  return std::min(main, (side - 1) / total_stride(stage) + 1);
}

std::string number(std::int64_t value) { return std::to_string(value); }

void add_predictor_problems(const ModelConfig& config, std::vector<Problem>& problems) {
  if (const std::int64_t frames = feature_frames(config); frames < 2) {
    problems.push_back({"modulator pc predicts the last frame from the frames before it, but the features have only " +
                            number(frames) + (frames == 1 ? " frame" : " frames"),
                        "recipe.modulator.type", "use more lags, a shorter frontend.kernel_size, or another modulator"});
  }
  if (const std::int64_t channels = feature_channels(config); channels != config.modulator.hidden_dim) {
    problems.push_back({"modulator pc needs a hidden_dim of " + number(channels) +
                            ", the number of feature channels, but it is " + number(config.modulator.hidden_dim),
                        "recipe.modulator.hidden_dim", "set it to " + number(channels)});
  }
}

}  // namespace

ModelConfig model_config_of(const RecipeConfig& recipe, std::int64_t lags, std::int64_t behavior_dim) {
  return {.adapter = recipe.adapter,
          .frontend = recipe.frontend,
          .convnet = recipe.convnet,
          .modulator = recipe.modulator,
          .readout = recipe.readout,
          .output_activation = recipe.output_activation,
          .lag_order = recipe.lag_order,
          .lags = lags,
          .behavior_dim = behavior_dim};
}

bool is_modulator_only(const ModelConfig& config) {
  return config.adapter.type == AdapterType::none && config.frontend.type == FrontendType::none &&
         config.convnet.type == ConvnetType::none;
}

bool has_projection(const StageConfig& stage, std::int64_t in) { return total_stride(stage) > 1 || stage.channels != in; }

std::int64_t gate_width(const StageConfig& stage) { return std::max<std::int64_t>(stage.channels / stage.squeeze, 1); }

std::int64_t feature_channels(const ModelConfig& config) {
  return config.convnet.type == ConvnetType::none ? frontend_channels(config) : config.convnet.stages.back().channels;
}

std::int64_t readout_channels(const ModelConfig& config) {
  const std::int64_t channels = feature_channels(config);
  switch (config.modulator.type) {
    case ModulatorType::convgru:
      return config.modulator.hidden_dim;
    case ModulatorType::pc:
      return 2 * channels;
    case ModulatorType::concat:
      return channels + config.modulator.encoder_params.dims.back();
    default:
      return channels;
  }
}

std::int64_t feature_frames(const ModelConfig& config) {
  if (is_modulator_only(config)) return 1;
  std::int64_t frames = config.lags;
  if (config.frontend.type != FrontendType::none) frames -= config.frontend.kernel_size - 1;
  if (config.convnet.type == ConvnetType::none) return frames;
  for (const StageConfig& stage : config.convnet.stages) frames = frames < 1 ? 0 : (frames - 1) / total_stride(stage) + 1;
  return frames;
}

std::int64_t feature_side(const ModelConfig& config, std::int64_t side) {
  if (is_modulator_only(config)) return 1;
  if (config.adapter.type != AdapterType::none) side = config.adapter.grid_size;
  if (config.convnet.type == ConvnetType::none) return side;
  std::int64_t width = side;
  for (const StageConfig& stage : config.convnet.stages) {
    side = side_after(stage, side, 1);
    width = side_after(stage, width, 2);
  }
  return std::min(side, width);
}

std::vector<Problem> shape_problems(const ModelConfig& config) {
  std::vector<Problem> problems;
  if (config.frontend.type != FrontendType::none && config.frontend.kernel_size > config.lags && !is_modulator_only(config)) {
    problems.push_back({"the frontend's filters have " + number(config.frontend.kernel_size) + " lags, but a sample has only " +
                            number(config.lags),
                        "recipe.frontend.kernel_size", "set it to at most " + number(config.lags)});
    return problems;
  }
  if (config.adapter.type != AdapterType::none && feature_side(config, config.adapter.grid_size) < 1) {
    problems.push_back({"the stages leave nothing of a grid of " + number(config.adapter.grid_size) + " pixels a side",
                        "recipe.adapter.grid_size", "use a larger grid, more padding, or smaller strides"});
  }
  if (config.modulator.type == ModulatorType::pc) add_predictor_problems(config, problems);
  if (config.modulator.type != ModulatorType::none && config.behavior_dim < 1) {
    problems.push_back({"a modulator needs behaviour, but the data have no behaviour", "recipe.modulator.type",
                        "set it to none, or give the data a transform that exposes behavior"});
  }
  if ((config.modulator.type == ModulatorType::convgru || config.modulator.type == ModulatorType::pc) &&
      config.modulator.kernel_size % 2 == 0) {
    problems.push_back({"a recurrent net's kernel of " + number(config.modulator.kernel_size) + " pixels has no centre",
                        "recipe.modulator.kernel_size", "use an odd number, such as 3"});
  }
  return problems;
}

double parameters_of(const ModelConfig& config, std::span<const std::int64_t> units) {
  double count = modulator_parameters(config);
  if (config.frontend.type != FrontendType::none)
    count += static_cast<double>(config.frontend.num_channels) * static_cast<double>(config.frontend.kernel_size);
  if (config.convnet.type != ConvnetType::none) count += convnet_parameters(config.convnet, frontend_channels(config));
  const bool gaussian = config.readout.type == ReadoutType::gaussian;
  const double per_unit = static_cast<double>(readout_channels(config)) + (gaussian ? 5 : 0) + (config.readout.bias ? 1 : 0);
  for (const std::int64_t n : units)
    count += (config.adapter.type == AdapterType::none ? 0 : 3) + per_unit * static_cast<double>(n);
  return count;
}

at::ScalarType wide_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }
at::Tensor wide(const at::Tensor& x) { return x.to(wide_type(x)); }

void Holder::put(const std::string& path, std::shared_ptr<torch::nn::Module> child) {
  const auto dot = path.find('.');
  if (dot == std::string::npos) {
    register_module(path, std::move(child));
    return;
  }
  const std::string first = path.substr(0, dot);
  auto modules = named_children();
  auto* found = modules.find(first);
  const auto holder =
      found != nullptr ? std::dynamic_pointer_cast<Holder>(*found) : register_module(first, std::make_shared<Holder>());
  holder->put(path.substr(dot + 1), std::move(child));
}

Weights::Weights(std::vector<std::int64_t> shape, bool with_bias) {
  weight = register_parameter("weight", at::empty(shape, at::kFloat));
  if (with_bias) bias = register_parameter("bias", at::empty({shape.front()}, at::kFloat));
}

void Weights::initialise(at::Generator& generator) {
  const std::int64_t fan_in = weight.numel() / weight.size(0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  weight.uniform_(-bound, bound, generator);
  if (bias.defined()) bias.uniform_(-bound, bound, generator);
}

}  // namespace millrace::recipes::neural_response
