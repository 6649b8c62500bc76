#include "recipes/neural_response/core.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr double kEpsilon = 1e-5;

// The input of a convolution. Under autocast the input is converted before it is padded, so that padding moves half the bytes.
at::Tensor for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() != at::kFloat) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
}

// The number of frames that a stage's main path gives, and the number that its shortcut gives.
std::pair<std::int64_t, std::int64_t> frames_of(const StageConfig& stage, std::int64_t frames) {
  const std::int64_t total = stage.stride * std::max<std::int64_t>(stage.pool_stride, 1);
  return {(frames - 1) / stage.stride + 1, (frames - 1) / total + 1};
}

at::Tensor last_frames(const at::Tensor& x, std::int64_t frames) { return x.narrow(1, x.size(1) - frames, frames); }

// Cuts the central height x width pixels out of images.
at::Tensor centre(const at::Tensor& x, std::int64_t height, std::int64_t width) {
  if (x.size(2) == height && x.size(3) == width) return x;
  return x.narrow(2, (x.size(2) - height) / 2, height).narrow(3, (x.size(3) - width) / 2, width);
}

// Repeats the edges of images on both sides of an axis. LibTorch's own padding is not used, because its gradient on a GPU adds
// in no fixed order.
at::Tensor continued(const at::Tensor& images, std::int64_t axis, std::int64_t pixels) {
  if (pixels == 0) return images;
  std::vector<std::int64_t> edge = images.sizes().vec();
  edge[static_cast<std::size_t>(axis)] = pixels;
  return at::cat({images.narrow(axis, 0, 1).expand(edge), images, images.narrow(axis, images.size(axis) - 1, 1).expand(edge)},
                 axis);
}

at::Tensor padded_by_edges(const at::Tensor& images, std::int64_t high, std::int64_t wide) {
  if (high == 0 && wide == 0) return images;
  if (!images.is_cpu() && at::globalContext().deterministicAlgorithms()) return continued(continued(images, 2, high), 3, wide);
  return at::replication_pad2d(images, {wide, wide, high, high});
}

}  // namespace

at::Tensor images_of(const at::Tensor& x) {
  // If x is a part of another tensor, clone() keeps the memory order of x. flatten() alone would copy x too, but with channels
  // first.
  const bool joins = x.size(0) == 1 || x.size(1) == 1 || x.stride(0) == x.size(1) * x.stride(1);
  return (joins || x.is_non_overlapping_and_dense() ? x : x.clone(at::MemoryFormat::Preserve)).flatten(0, 1);
}

Frontend::Frontend(const FrontendConfig& config, LagOrder order, const nn::Fused& fused)
    : order_(order),
      fused_(fused),
      temporal_conv_(register_module(
          "temporal_conv",
          std::make_shared<Weights>(std::vector<std::int64_t>{config.num_channels, 1, config.kernel_size}, false))) {}

at::Tensor Frontend::forward(const at::Tensor& x) const { return nn::temporal_filters(x, temporal_conv_->weight, fused_); }

void Frontend::initialise(at::Generator& generator) {
  const at::Tensor& weight = temporal_conv_->weight;
  const std::int64_t size = weight.size(2);
  const double reach = static_cast<double>(size - 1) / 2.0, sigma = static_cast<double>(size) / 6.0, variance = sigma * sigma;
  const at::Tensor t = at::linspace(-reach, reach, size, at::kFloat);
  const at::Tensor bell = at::exp(-0.5 * t.square() / variance);
  for (std::int64_t i = 0; i < weight.size(0); ++i) {
    at::Tensor filter = bell;
    if (i == 1) filter = -t / variance * bell;
    if (i == 2) filter = (t.square() / variance - 1.0) / variance * bell;
    if (i > 2) filter = at::randn({size}, generator) * bell;
    filter = filter / filter.norm();
    weight[i][0].copy_(order_ == LagOrder::newest_first ? filter.flip(0) : filter);
  }
}

Stage::Stage(const StageConfig& config, std::int64_t in, const nn::Fused& fused) : config_(config), fused_(fused) {
  const std::int64_t out = config.channels;
  const auto parts = std::make_shared<Holder>();
  conv_ = std::make_shared<Weights>(
      std::vector<std::int64_t>{out, in, config.kernel_size[0], config.kernel_size[1], config.kernel_size[2]}, false);
  parts->put("components.conv.conv", conv_);
  if (config.pool_stride > 0) {
    const std::int64_t width = gate_width(config);
    squeeze_ = std::make_shared<Weights>(std::vector<std::int64_t>{width, out, 1, 1, 1}, true);
    excite_ = std::make_shared<Weights>(std::vector<std::int64_t>{out, width, 1, 1, 1}, true);
    const auto pool = std::make_shared<Holder>();
    const at::Tensor taps = at::tensor({1.0F, 2.0F, 1.0F});  // host: done once, when the module is made
    // never read; registered because VisionCore's files have this buffer
    pool->register_buffer("blur", (at::outer(taps, taps) / 16.0).view({1, 1, 3, 3}));
    pool->put("se.1", squeeze_);
    pool->put("se.3", excite_);
    parts->put("components.pool", pool);
  }
  register_module("main_block", parts);
  if (!has_projection(config, in)) return;
  shortcut_ = std::make_shared<Weights>(std::vector<std::int64_t>{out, in, 1, 1, 1}, false);
  register_module("shortcut", std::make_shared<Holder>())->put("0", shortcut_);
}

void Stage::initialise(at::Generator& generator) {
  for (const auto& weights : {conv_, squeeze_, excite_, shortcut_})
    if (weights != nullptr) weights->initialise(generator);
}

// Returns, for the last `frames` of `outputs` output frames, the input frames that the kernel covers, one after the other as
// channels of an image: (N frames, taps C, H, W). Input frames before the first are copies of the first frame.
at::Tensor Stage::windows(const at::Tensor& x, std::int64_t outputs, std::int64_t frames) {
  const std::int64_t taps = config_.kernel_size[0];
  std::vector<std::int64_t> sources;
  for (std::int64_t output = outputs - frames; output < outputs; ++output) {
    for (std::int64_t tap = 0; tap < taps; ++tap)
      sources.push_back(std::max<std::int64_t>(output * config_.stride - (taps - 1 - tap) * config_.dilation, 0));
  }
  if (sources != sources_ || !index_.defined() ||
      index_.device() != x.device()) {  // host: copied to the device once, because a copy to a GPU would wait
    sources_ = std::move(sources);
    index_ = at::tensor(sources_, x.options().dtype(at::kLong));
  }
  return x.index_select(1, index_).view({x.size(0) * frames, taps * x.size(2), x.size(3), x.size(4)});
}

// The last `frames` output frames of the convolution, as images. Along time, only the beginning is padded, with copies of the
// first frame.
at::Tensor Stage::convolved(const at::Tensor& x, std::int64_t frames, at::MemoryFormat format) {
  const std::int64_t taps = config_.kernel_size[0], high = config_.padding[1], wide = config_.padding[2];
  const std::int64_t strides[] = {config_.stride, config_.stride}, dilations[] = {config_.dilation, config_.dilation};
  const std::int64_t none[] = {0, 0};
  const auto convolution = [&](const at::Tensor& images, const at::Tensor& weight) {
    return at::conv2d(images.contiguous(format), weight, {}, strides, none, dilations);
  };
  const at::Tensor images = for_convolution(images_of(x));
  const at::Tensor padded = padded_by_edges(images, high, wide).unflatten(0, {x.size(0), x.size(1)});
  const std::int64_t outputs = (x.size(1) - 1) / config_.stride + 1;
  const at::Tensor& weight = conv_->weight;
  if (fused_.on(kNeededOnly) && taps > 1 && config_.stride == 1 && x.size(1) <= config_.dilation + 1 && x.size(1) > 1) {
    // The input is so short that, for every output frame, all taps except the last one see the first frame. One convolution with
    // the sum of these taps replaces them.
    const at::Tensor past = convolution(padded.select(1, 0), weight.narrow(2, 0, taps - 1).sum(2));
    const at::Tensor now = convolution(images_of(last_frames(padded, frames)), weight.select(2, taps - 1));
    return now.unflatten(0, {x.size(0), frames}).add_(past.unsqueeze(1)).flatten(0, 1);
  }
  const std::int64_t computed = fused_.on(kNeededOnly) ? frames : outputs;
  const at::Tensor y = convolution(windows(padded, outputs, computed), weight.transpose(1, 2).flatten(1, 2));
  return computed == frames ? y : images_of(last_frames(y.unflatten(0, {x.size(0), computed}), frames));
}

// The last `frames` output frames of the shortcut, as images. Strides are done by slicing. The convolution then has no stride,
// and LibTorch computes it faster, and correctly on every CPU.
at::Tensor Stage::skipped(const at::Tensor& x, std::int64_t frames) const {
  const std::int64_t stride = config_.stride * std::max<std::int64_t>(config_.pool_stride, 1);
  const std::int64_t last = (x.size(1) - 1) / stride * stride;
  const at::Tensor kept = x.slice(1, last - (frames - 1) * stride, last + 1, stride);
  if (shortcut_ == nullptr) return images_of(kept);
  const at::Tensor images = images_of(kept.slice(3, 0, std::nullopt, stride).slice(4, 0, std::nullopt, stride));
  return at::conv2d(for_convolution(images), shortcut_->weight.flatten(2, 3));
}

// The gate of the pooling: (N, C, 1, 1), between 0 and 1, from the mean over each frame's pixels.
at::Tensor Stage::gate(const at::Tensor& pooled) const {
  const auto layer = [&](const at::Tensor& x, const Weights& weights) {
    return nn::linear(x, weights.weight.flatten(1), weights.bias, fused_);
  };
  const at::Tensor mean = pooled.mean({2, 3}, false, wide_type(pooled));
  return at::sigmoid(layer(at::silu(layer(mean, *squeeze_)), *excite_)).unsqueeze(2).unsqueeze(3);
}

at::Tensor Stage::forward(const at::Tensor& x, std::int64_t frames, bool channels_last) {
  const auto [of_main, of_shortcut] = frames_of(config_, x.size(1));
  const std::int64_t kept = frames > 0 ? std::min(frames, std::min(of_main, of_shortcut)) : std::min(of_main, of_shortcut);
  const auto format = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  at::Tensor y = nn::rms_norm_silu(convolved(x, kept, format).unsqueeze(2), kEpsilon, fused_);
  // dropout numbers elements with channels last in both layouts, so that both layouts drop the same elements
  if (is_training() && config_.dropout > 0) {
    y = nn::dropout(y.permute({0, 2, 3, 4, 1}), config_.dropout, fused_).permute({0, 4, 1, 2, 3});
    if (!channels_last) y = y.contiguous();
  }
  const at::Tensor skip = skipped(x, kept);
  if (config_.pool_stride > 0) y = nn::blurred_soft_pool(y, config_.pool_stride, fused_);
  y = y.squeeze(2);
  const std::int64_t height = std::min(y.size(2), skip.size(2)), width = std::min(y.size(3), skip.size(3));
  const at::Tensor middle = centre(y, height, width), around = centre(skip, height, width);
  const at::Tensor sum = config_.pool_stride == 0 ? around + middle : at::addcmul(around, middle, gate(y).to(y.scalar_type()));
  return sum.unflatten(0, {x.size(0), kept});
}

Convnet::Convnet(const ConvnetConfig& config, std::int64_t in, const nn::Fused& fused)
    : final_activation_(config.final_activation) {
  const auto layers = register_module("layers", std::make_shared<Holder>());
  for (std::size_t i = 0; i < config.stages.size(); ++i) {
    stages_.push_back(std::make_shared<Stage>(config.stages[i], in, fused));
    layers->put(std::to_string(i), stages_.back());
    in = config.stages[i].channels;
  }
}

void Convnet::initialise(at::Generator& generator) {
  for (const auto& stage : stages_) stage->initialise(generator);
}

at::Tensor Convnet::forward(const at::Tensor& x, bool last_frame_only, bool channels_last) {
  at::Tensor y = x;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const bool last = i + 1 == stages_.size();
    y = memory::block("convnet.layers." + std::to_string(i), *stages_[i],
                      [stage = stages_[i], y, channels_last, frames = last && last_frame_only ? std::int64_t{1} : std::int64_t{0},
                       softplus = last && final_activation_ == Activation::softplus] {
                        const at::Tensor out = stage->forward(y, frames, channels_last);
                        return softplus ? at::softplus(out) : out;
                      });
  }
  return y;
}

std::int64_t side_of_last_frame(const ModelConfig& config, std::int64_t side) {
  if (config.adapter.type == AdapterType::adapter) side = config.adapter.grid_size;
  if (config.convnet.type == ConvnetType::none) return side;
  for (const StageConfig& stage : config.convnet.stages) {
    std::int64_t main = (side + 2 * stage.padding[1] - stage.dilation * (stage.kernel_size[1] - 1) - 1) / stage.stride + 1;
    if (stage.pool_stride > 0) main = (main - 2) / stage.pool_stride + 1;
    side = std::min(main, (side - 1) / (stage.stride * std::max<std::int64_t>(1, stage.pool_stride)) + 1);
  }
  return side;
}

}  // namespace millrace::recipes::neural_response
