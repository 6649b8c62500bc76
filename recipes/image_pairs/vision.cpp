#include "recipes/image_pairs/vision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include <string>
#include <tuple>
#include <utility>

#include "millrace/memory/block.h"
#include "millrace/nn/functional.h"

namespace millrace::recipes::image_pairs {
namespace {

constexpr double kLayerNormEps = 1e-5;

nn::Gelu kind_of(Activation activation) {
  if (activation == Activation::quick_gelu) return nn::Gelu::quick;
  return activation == Activation::gelu ? nn::Gelu::exact : nn::Gelu::tanh;
}

std::shared_ptr<torch::nn::Module> group(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

}  // namespace

struct VisionBlock : torch::nn::Module {
  VisionBlock(const RecipeConfig& config, const Making& how) : activation(kind_of(activation_of(config))) {
    const std::int64_t width = config.vision_width, hidden = config.vision_hidden;
    const std::int64_t rank = config.lora_vision ? config.lora_r : 0;
    layer_norm1 = register_module("layer_norm1", std::make_shared<LayerNorm>(width, how));
    const auto attention = group(*this, "self_attn");
    const auto square = [&](const char* name, std::int64_t rank_here, const at::Tensor& memory = {}) {
      const Projection::Shape shape{.in = width, .out = width, .bias = true, .rank = rank_here};
      return attention->register_module(name, std::make_shared<Projection>(shape, how, memory));
    };
    const auto qkv = side_by_side({width, width, width}, width, how);
    q = square("q_proj", rank, qkv[0]);
    k = square("k_proj", rank, qkv[1]);
    v = square("v_proj", rank, qkv[2]);
    out = square("out_proj", 0);
    layer_norm2 = register_module("layer_norm2", std::make_shared<LayerNorm>(width, how));
    const auto mlp = group(*this, "mlp");
    fc1 = mlp->register_module("fc1",
                               std::make_shared<Projection>(Projection::Shape{.in = width, .out = hidden, .bias = true}, how));
    fc2 = mlp->register_module("fc2",
                               std::make_shared<Projection>(Projection::Shape{.in = hidden, .out = width, .bias = true}, how));
  }

  using torch::nn::Module::to;
  void to(at::Device device, bool non_blocking) override {
    torch::nn::Module::to(device, non_blocking);
    Projection::put_side_by_side({q.get(), k.get(), v.get()});
  }

  // Attention and feed-forward, the two branches of a block. VisionTower::forward() computes the residual stream and the norms.
  [[nodiscard]] at::Tensor attend(const at::Tensor& y, std::int64_t heads, const Projecting& how) const {
    const at::Tensor qkv = project(y, {q.get(), k.get(), v.get()}, how, is_training());
    return project(nn::full_self_attention(qkv, heads, how.fused), {out.get()}, how, is_training());
  }
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& y, const Projecting& how) const {
    const at::Tensor x = project(y, {fc1.get()}, how, is_training());
    if (const nn::LoraProjection second = fc2->adapted(); x.requires_grad() && second.weight.scalar_type() == at::kFloat)
      return nn::gelu_linear(x, second.weight, second.bias, activation, how.fused);
    return project(nn::gelu(x, activation), {fc2.get()}, how, is_training());
  }

  nn::Gelu activation;
  std::shared_ptr<LayerNorm> layer_norm1, layer_norm2;
  std::shared_ptr<Projection> q, k, v, out, fc1, fc2;
};

Activation activation_of(const RecipeConfig& config) { return config.vision_activation.value_or(Activation::quick_gelu); }

std::int64_t built_vision_blocks(const RecipeConfig& config) { return config.vision_layers + config.vision_feature_layer + 1; }

VisionTower::VisionTower(const RecipeConfig& config, const Projecting& projecting, const Making& how)
    : patch_(config.patch_size), heads_(config.vision_heads), projecting_(projecting) {
  const std::int64_t width = config.vision_width, across = config.image_size / patch_;
  const auto model = group(*this, "vision_model");
  const auto embeddings = model->register_module("embeddings", std::make_shared<torch::nn::Module>());
  const auto options = at::TensorOptions().dtype(how.frozen ? how.base_type : at::kFloat).device(how.device);
  class_embedding_ = embeddings->register_parameter("class_embedding", at::empty({width}, options), !how.frozen);
  const std::vector<std::int64_t> kernel{width, 3, patch_, patch_}, positions{across * across + 1, width};
  patch_embedding_ = embeddings->register_module("patch_embedding", std::make_shared<Weight>(kernel, how));
  position_embedding_ = embeddings->register_module("position_embedding", std::make_shared<Weight>(positions, how));
  pre_norm_ = model->register_module("pre_layrnorm", std::make_shared<LayerNorm>(width, how));
  const auto layers = group(*group(*model, "encoder"), "layers");
  for (std::int64_t i = 0; i < built_vision_blocks(config); ++i)
    blocks_.push_back(layers->register_module(std::to_string(i), std::make_shared<VisionBlock>(config, how)));
}

VisionTower::~VisionTower() = default;

at::Tensor VisionTower::embed(const at::Tensor& pixels) const {
  const std::int64_t rows = pixels.size(0), across = pixels.size(2) / patch_;
  // Patches do not overlap, so their convolution is a matrix product.
  const at::Tensor patches = pixels.reshape({rows, 3, across, patch_, across, patch_})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({rows, across * across, 3 * patch_ * patch_});
  const at::Tensor x = at::linear(patches, patch_embedding_->weight.flatten(1).to(at::kFloat)).to(at::kFloat);
  const at::Tensor first = class_embedding_.to(at::kFloat).expand({rows, 1, -1});
  const at::Tensor all = at::cat({first, x}, 1) + position_embedding_->weight.to(at::kFloat);
  return at::layer_norm(all, all.sizes().slice(2), norm_weight(pre_norm_->weight), norm_weight(pre_norm_->bias), kLayerNormEps)
      .to(at::kFloat);
}

at::Tensor VisionTower::forward(const at::Tensor& pixels) {
  const nn::Fused& fused = projecting_.fused;
  const auto add = [&fused](const at::Tensor& branch, const at::Tensor& x, const LayerNorm& norm) {
    return nn::dropout_add_layer_norm(branch, x, norm_weight(norm.weight), norm_weight(norm.bias), kLayerNormEps, 0, fused);
  };
  at::Tensor x = embed(pixels);
  const LayerNorm& first = *blocks_.front()->layer_norm1;
  at::Tensor y = nn::layer_norm(x, norm_weight(first.weight), norm_weight(first.bias), kLayerNormEps, fused);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const VisionBlock& block = *blocks_[i];
    const LayerNorm* next = i + 1 < blocks_.size() ? blocks_[i + 1]->layer_norm1.get() : nullptr;
    std::tie(x, y) = memory::block("vision.layers." + std::to_string(i), block, [this, &block, next, add, x, y] {
      const auto middle = add(block.attend(y, heads_, projecting_), x, *block.layer_norm2);
      const at::Tensor branch = block.feed_forward(middle.second, projecting_);
      if (next != nullptr) return add(branch, middle.first, *next);
      return std::pair<at::Tensor, at::Tensor>(middle.first + branch, branch);
    });
  }
  return x.narrow(1, 1, x.size(1) - 1);  // leaves out the class token
}

}  // namespace millrace::recipes::image_pairs
