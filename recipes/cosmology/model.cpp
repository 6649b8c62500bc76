#include "recipes/cosmology/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/conv_transpose3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>

#include <array>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/memory/block.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kVolume = 27;  // number of weights of a 3 x 3 x 3 kernel

at::Tensor activate(const at::Tensor& x, Activation act, const nn::Fused& fused) {
  return act == Activation::silu ? at::silu(x) : nn::smooth_leaky(x, fused);
}

}  // namespace

double parameters_of(double filters) { return 2052 * filters * filters + 195 * filters + 2; }

std::int64_t parameter_count(std::int64_t filters) {
  return static_cast<std::int64_t>(parameters_of(static_cast<double>(filters)));
}

Convolution::Convolution(std::int64_t first, std::int64_t second, std::int64_t out) {
  weight = register_parameter("weight", at::empty({first, second, 3, 3, 3}, at::kFloat));
  bias = register_parameter("bias", at::empty({out}, at::kFloat));
}

Block::Block(std::int64_t in, std::int64_t out, std::int64_t stride, Activation act, const nn::Fused& fused)
    : stride_(stride), act_(act), fused_(fused), conv1_(std::make_shared<Convolution>(out, in, out)), bn1_(out) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
}

at::Tensor Block::forward(const at::Tensor& x, const at::Tensor& skip) {
  return activate(bn1_->forward(nn::circular_conv3d(x, skip, conv1_->weight, conv1_->bias, stride_, fused_)), act_, fused_);
}

Layer::Layer(std::string name, std::int64_t in, std::int64_t out, int blocks, std::int64_t stride, Activation act,
             const nn::Fused& fused)
    : name_(std::move(name)) {
  for (int i = 0; i < blocks; ++i) {
    blocks_.push_back(register_module(std::to_string(i), std::make_shared<Block>(i == 0 ? in : out, out, stride, act, fused)));
  }
}

at::Tensor Layer::forward(const at::Tensor& x, const at::Tensor& skip) {
  at::Tensor y = x;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    y = memory::block(name_ + "." + std::to_string(i), *blocks_[i],
                      [&block = *blocks_[i], y, and_skip = i == 0 ? skip : at::Tensor()] { return block.forward(y, and_skip); });
  }
  return y;
}

UNet::UNet(const ModelConfig& config, std::uint64_t seed, const nn::Fused& fused)
    : config_(config), fused_(fused), deconv_batchnorm1_(2 * config.filters), deconv_batchnorm2_(config.filters) {
  const std::int64_t f = config.filters;
  const auto layer = [&](const char* name, std::int64_t in, std::int64_t out, int blocks, std::int64_t stride) {
    return register_module(name, std::make_shared<Layer>(name, in, out, blocks, stride, config.act, fused));
  };
  layer1_ = layer("layer1", 2, f, 2, 1);
  layer2_ = layer("layer2", f, 2 * f, 1, 2);
  layer3_ = layer("layer3", 2 * f, 2 * f, 2, 1);
  layer4_ = layer("layer4", 2 * f, 4 * f, 1, 2);
  layer5_ = layer("layer5", 4 * f, 4 * f, 2, 1);
  deconv1_ = register_module("deconv1", std::make_shared<Convolution>(4 * f, 2 * f, 2 * f));
  register_module("deconv_batchnorm1", deconv_batchnorm1_);
  layer6_ = layer("layer6", 4 * f, 2 * f, 2, 1);
  deconv2_ = register_module("deconv2", std::make_shared<Convolution>(2 * f, f, f));
  register_module("deconv_batchnorm2", deconv_batchnorm2_);
  layer7_ = layer("layer7", 2 * f, f, 2, 1);
  deconv4_ = register_module("deconv4", std::make_shared<Convolution>(2, f, 2));
  initialise(seed);
}

// Initialises as torch does: uniformly within 1/sqrt(fan in). For a transposed convolution, torch computes the fan in from the
// output channels.
void UNet::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  double bound = 0;
  for (auto& named : named_parameters()) {
    at::Tensor& value = named.value();
    if (named.key().find("bn1") != std::string::npos || named.key().find("batchnorm") != std::string::npos) continue;
    if (value.dim() == 5) bound = 1.0 / std::sqrt(static_cast<double>(value.size(1) * kVolume));
    value.uniform_(-bound, bound, generator);  // the weight of a layer comes before its bias, so a bias gets the bound of its
                                               // weight
  }
}

at::Tensor UNet::up(const char* name, const Convolution& deconv, nn::BatchNorm& norm, const at::Tensor& x) {
  return memory::block(name, *norm, [this, &deconv, &norm, x] {
    constexpr std::array<std::int64_t, 3> kTwo{2, 2, 2};
    constexpr std::array<std::int64_t, 3> kOne{1, 1, 1};
    at::Tensor y = at::conv_transpose3d(x, deconv.weight, deconv.bias, kTwo, kOne, kOne);
    // In fp32, LibTorch returns another layout than channels_last.
    if (channels_last_) y = y.contiguous(at::MemoryFormat::ChannelsLast3d);
    return activate(norm->forward(y), config_.act, fused_);
  });
}

at::Tensor UNet::forward(const at::Tensor& x) {
  MR_CHECK(x.dim() == 5 && x.size(1) == 2 && x.size(2) % 4 == 0 && x.size(3) % 4 == 0 && x.size(4) % 4 == 0,
           "the U-Net takes (N, 2, D, H, W), D, H and W divisible by 4");
  const at::Tensor volume = x.contiguous(channels_last_ ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous);
  const at::Tensor whole = layer1_->forward(volume);
  const at::Tensor half = layer3_->forward(layer2_->forward(whole));
  const at::Tensor quarter = layer5_->forward(layer4_->forward(half));
  const at::Tensor joined = layer6_->forward(up("deconv1", *deconv1_, deconv_batchnorm1_, quarter), half);
  const at::Tensor full = layer7_->forward(up("deconv2", *deconv2_, deconv_batchnorm2_, joined), whole);
  return nn::circular_conv3d(full, {}, deconv4_->weight, deconv4_->bias, 1, fused_);
}

}  // namespace millrace::recipes::cosmology
