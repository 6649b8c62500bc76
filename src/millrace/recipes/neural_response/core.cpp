#include "millrace/recipes/neural_response/core.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/replication_pad3d.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr double kEpsilon = 1e-5;

// What a convolution is to read: under autocast its type, before padding, which then moves half the bytes.
at::Tensor for_convolution(const at::Tensor& x) {
  const auto device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() != at::kFloat) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
}

// Frames of the main path and of the shortcut of a stage.
std::pair<std::int64_t, std::int64_t> frames_of(const StageConfig& stage, std::int64_t frames) {
  const std::int64_t total = stage.stride * std::max<std::int64_t>(stage.pool_stride, 1);
  return {(frames - 1) / stage.stride + 1, (frames - 1) / total + 1};
}

at::Tensor last_frames(const at::Tensor& x, std::int64_t frames) { return x.narrow(2, x.size(2) - frames, frames); }

// The centre of the last two axes.
at::Tensor centre(const at::Tensor& x, std::int64_t height, std::int64_t width) {
  if (x.size(3) == height && x.size(4) == width) return x;
  return x.narrow(3, (x.size(3) - height) / 2, height).narrow(4, (x.size(4) - width) / 2, width);
}

}  // namespace

Frontend::Frontend(const FrontendConfig& config, LagOrder order, const nn::StencilPaths& paths)
    : order_(order),
      paths_(paths),
      temporal_conv_(register_module(
          "temporal_conv",
          std::make_shared<Weights>(std::vector<std::int64_t>{config.num_channels, 1, config.kernel_size}, false))) {}

at::Tensor Frontend::forward(const at::Tensor& x) const { return nn::temporal_filters(x, temporal_conv_->weight, paths_); }

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

Stage::Stage(const StageConfig& config, std::int64_t in, const ModelPaths& paths) : config_(config), paths_(paths) {
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
    const at::Tensor taps = at::tensor({1.0F, 2.0F, 1.0F});
    pool->register_buffer("blur", (at::outer(taps, taps) / 16.0).view({1, 1, 3, 3}));  // files of the original hold it
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

// The convolution's last `frames` frames. Time is continued to the left alone, by the first frame.
at::Tensor Stage::convolved(const at::Tensor& x, std::int64_t frames) const {
  const std::int64_t stride = config_.stride, dilation = config_.dilation, taps = config_.kernel_size[0];
  const std::int64_t reach = dilation * (taps - 1), high = config_.padding[1], wide = config_.padding[2];
  const std::int64_t strides[] = {stride, stride, stride}, none[] = {0, 0, 0}, dilations[] = {dilation, dilation, dilation};
  const auto padded = [&](const at::Tensor& part, std::int64_t before) {
    return at::replication_pad3d(part, {wide, wide, high, high, before, 0});
  };
  const auto convolution = [&](const at::Tensor& part, const at::Tensor& weight) {
    return at::conv3d(part, weight, {}, strides, none, dilations);
  };
  const at::Tensor input = for_convolution(x);
  if (!paths_.needed_only) return last_frames(convolution(padded(input, reach), conv_->weight), frames);
  if (taps > 1 && stride == 1 && x.size(2) <= dilation + 1 && x.size(2) > 1) {
    // All taps but the last one see the first frame, whatever the frame: one convolution with their sum.
    const at::Tensor& weight = conv_->weight;
    const at::Tensor whole =
        padded(frames == x.size(2) ? input : at::cat({input.narrow(2, 0, 1), last_frames(input, frames)}, 2), 0);
    const at::Tensor past = convolution(whole.narrow(2, 0, 1), weight.narrow(2, 0, taps - 1).sum({2}, true));
    return convolution(last_frames(whole, frames), weight.narrow(2, taps - 1, 1)).add_(past);
  }
  const std::int64_t last = (x.size(2) - 1) / stride * stride;  // input frame of the last tap for the last output frame
  const std::int64_t first = last - (frames - 1) * stride - reach;
  const std::int64_t from = std::max<std::int64_t>(first, 0);
  return convolution(padded(input.narrow(2, from, last + 1 - from), from - first), conv_->weight);
}

// The last `frames` frames of the shortcut. Strides are taken by a slice: the convolution that is left has none, which the
// library below computes faster, and right on every CPU.
at::Tensor Stage::skipped(const at::Tensor& x, std::int64_t frames) const {
  const std::int64_t stride = config_.stride * std::max<std::int64_t>(config_.pool_stride, 1);
  const std::int64_t last = (x.size(2) - 1) / stride * stride;
  const at::Tensor kept = x.slice(2, last - (frames - 1) * stride, last + 1, stride);
  if (shortcut_ == nullptr) return kept;
  return at::conv3d(for_convolution(kept.slice(3, 0, std::nullopt, stride).slice(4, 0, std::nullopt, stride)), shortcut_->weight);
}

// (N, C, T, 1, 1), between 0 and 1, from each frame's mean over its pixels.
at::Tensor Stage::gate(const at::Tensor& pooled) const {
  const at::Tensor mean = pooled.mean({3, 4}, false, at::kFloat).transpose(1, 2);
  const auto layer = [&](const at::Tensor& x, const Weights& weights) {
    return nn::linear(x, weights.weight.flatten(1), weights.bias, paths_.nn);
  };
  const at::Tensor open = at::sigmoid(layer(at::silu(layer(mean, *squeeze_)), *excite_));
  return open.transpose(1, 2).unsqueeze(3).unsqueeze(4);
}

at::Tensor Stage::forward(const at::Tensor& x, std::int64_t frames) {
  const auto [of_main, of_shortcut] = frames_of(config_, x.size(2));
  const std::int64_t kept = frames > 0 ? std::min(frames, std::min(of_main, of_shortcut)) : std::min(of_main, of_shortcut);
  at::Tensor y = nn::rms_norm_silu(convolved(x, kept), kEpsilon, paths_.stencil);
  y = nn::dropout(y, is_training() ? config_.dropout : 0.0, paths_.nn);
  const at::Tensor skip = skipped(x, kept);
  if (config_.pool_stride > 0) y = nn::blurred_soft_pool(y, config_.pool_stride, paths_.stencil);
  const std::int64_t height = std::min(y.size(3), skip.size(3)), width = std::min(y.size(4), skip.size(4));
  const at::Tensor middle = centre(y, height, width), around = centre(skip, height, width);
  if (config_.pool_stride == 0) return around + middle;
  return at::addcmul(around, middle, gate(y).to(y.scalar_type()));
}

Convnet::Convnet(const ConvnetConfig& config, std::int64_t in, const ModelPaths& paths)
    : final_activation_(config.final_activation) {
  const auto layers = register_module("layers", std::make_shared<Holder>());
  for (std::size_t i = 0; i < config.stages.size(); ++i) {
    stages_.push_back(std::make_shared<Stage>(config.stages[i], in, paths));
    layers->put(std::to_string(i), stages_.back());
    in = config.stages[i].channels;
  }
}

void Convnet::initialise(at::Generator& generator) {
  for (const auto& stage : stages_) stage->initialise(generator);
}

at::Tensor Convnet::forward(const at::Tensor& x, bool last_frame_only) {
  at::Tensor y = x;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const bool last = i + 1 == stages_.size();
    y = memory::block("convnet.layers." + std::to_string(i), *stages_[i],
                      [stage = stages_[i], y, frames = last && last_frame_only ? std::int64_t{1} : std::int64_t{0},
                       softplus = last && final_activation_ == Activation::softplus] {
                        const at::Tensor out = stage->forward(y, frames);
                        return softplus ? at::softplus(out) : out;
                      });
  }
  return y;
}

}  // namespace millrace::recipes::neural_response
