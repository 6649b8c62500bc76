#include "recipes/language_model/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "millrace/memory/block.h"

namespace millrace::recipes::language_model {
namespace {

constexpr double kNormEps = 1e-5;

std::int64_t hidden_width(const ModelConfig& config) { return config.hidden > 0 ? config.hidden : 4 * config.width; }

// The number of parameters as an integer, or as a double for sizes that do not fit into 64 bits.
template <class Number>
Number parameters_in(const ModelConfig& c) {
  const auto d = static_cast<Number>(c.width);
  const Number f = c.hidden > 0 ? static_cast<Number>(c.hidden) : 4 * d;
  const Number block = 4 * (d * d + d) + (d * f + f) + (f * d + d) + 4 * d;
  return static_cast<Number>(c.vocab_size) * d * (c.tied ? 1 : 2) + static_cast<Number>(c.layers) * block + 2 * d +
         (c.learned_positions ? static_cast<Number>(c.positions) * d : 0);
}

std::shared_ptr<Affine> linear(std::int64_t out, std::int64_t in, at::Device device, bool with_bias = true) {
  return std::make_shared<Affine>(std::vector<std::int64_t>{out, in}, with_bias, device);
}

std::shared_ptr<Affine> norm(std::int64_t width, at::Device device) {
  return std::make_shared<Affine>(std::vector<std::int64_t>{width}, true, device);
}

// The dtype in which attention computes: the dtype of autocast if autocast is on, else the dtype of the weights.
at::ScalarType compute_type(at::Device device, at::ScalarType of_weights) {
  return at::autocast::is_autocast_enabled(device.type()) ? at::autocast::get_autocast_dtype(device.type()) : of_weights;
}

}  // namespace

std::vector<Problem> shape_problems(const ModelConfig& c) {
  std::vector<Problem> problems;
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  if (c.width % c.heads != 0) {
    problems.push_back({"a width of " + number(c.width) + " can't be divided among " + number(c.heads) + " heads",
                        "recipe.model_embd, recipe.model_head", "make model_embd a multiple of model_head"});
  }
  if (c.width % 2 != 0) {
    problems.push_back({"a width of " + number(c.width) + " is odd: positions are pairs of sine and cosine", "recipe.model_embd",
                        "use an even width, such as " + number(c.width + 1)});
  }
  if (c.vocab_size < 1) {
    problems.push_back({"a model needs a vocabulary of at least one token", "recipe.vocab_size", "give it the tokenizer's size"});
  }
  return problems;
}

ModelConfig model_config(const RecipeConfig& recipe, std::int64_t vocab_size) {
  return {.vocab_size = vocab_size,
          .positions = recipe.model_positions,
          .width = recipe.model_embd,
          .layers = recipe.model_layer,
          .heads = recipe.model_head,
          .activation = recipe.model_activation,
          .embedding_dropout = recipe.embd_pdrop.value_or(recipe.model_dropout),
          .attention_dropout = recipe.attn_pdrop.value_or(recipe.model_dropout),
          .residual_dropout = recipe.resid_pdrop.value_or(recipe.model_dropout),
          .tied = recipe.tied,
          .embedding_scale = recipe.embedding_scale,
          .learned_positions = recipe.positions == Positions::learned,
          .position_scale = recipe.position_scale,
          .attention = recipe.attention.value_or(Attention::causal)};
}

std::int64_t parameter_count(const ModelConfig& c) { return parameters_in<std::int64_t>(c); }

ModelSize size_of_model(const ModelConfig& c) {
  constexpr double kFloat = 4;
  // Bytes that a block's modules and tensors take in addition to the tensors' values, approximately.
  constexpr double kBlock = 16 << 10;
  const auto parameters = parameters_in<double>(c);
  const double sinusoids = c.learned_positions ? 0.0 : static_cast<double>(c.positions) * static_cast<double>(c.width);
  return {parameters, kFloat * (parameters + sinusoids) + kBlock * static_cast<double>(c.layers)};
}

Affine::Affine(std::vector<std::int64_t> weight_shape, bool with_bias, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  weight = register_parameter("weight", at::zeros(weight_shape, options));
  if (with_bias) bias = register_parameter("bias", at::zeros({weight_shape.front()}, options));
}

Attend::Attend(const ModelConfig& config, const nn::Fused& fused, at::Device device)
    : heads_(config.heads),
      dropout_(config.attention_dropout),
      textbook_(config.attention == Attention::math),
      fused_(fused),
      w_q_(register_module("w_q", linear(config.width, config.width, device))),
      w_k_(register_module("w_k", linear(config.width, config.width, device))),
      w_v_(register_module("w_v", linear(config.width, config.width, device))),
      w_o_(register_module("w_o", linear(config.width, config.width, device))) {}

at::Tensor Attend::forward(const at::Tensor& x, const AttentionMask& mask) {
  at::Tensor attended;
  if (mask.additive.defined()) {
    const auto heads = [&](const Affine& affine) {  // (B,T,C) -> (B,H,T,C/H)
      const at::Tensor y = nn::linear(x, affine.weight, affine.bias, fused_);
      return y.view({y.size(0), y.size(1), heads_, -1}).transpose(1, 2);
    };
    attended = masked(heads(*w_q_), heads(*w_k_), heads(*w_v_), mask).transpose(1, 2).flatten(2);
  } else {
    attended = nn::causal_self_attention(x, {w_q_->weight, w_q_->bias, w_k_->weight, w_k_->bias, w_v_->weight, w_v_->bias},
                                         heads_, is_training() ? dropout_ : 0.0, fused_);
  }
  return nn::linear(attended, w_o_->weight, w_o_->bias, fused_);
}

at::Tensor Attend::masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionMask& mask) {
  const double dropout = is_training() ? dropout_ : 0.0;
  at::Tensor attended;
  if (textbook_ || dropout > 0) {  // with dropout, this path is used too, because ATen's attention would draw other random
                                   // numbers
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(-1)));
    const at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) * scale + mask.additive;
    attended = at::matmul(nn::dropout(at::softmax(scores, -1), dropout, fused_), v);
  } else {
    attended = at::scaled_dot_product_attention(q, k, v, mask.additive);
  }
  return mask.open.defined() ? attended.masked_fill(mask.open.logical_not(), 0) : attended;
}

FeedForward::FeedForward(const ModelConfig& config, const nn::Fused& fused, at::Device device)
    : activation_(config.activation),
      dropout_(config.residual_dropout),
      fused_(fused),
      fc1_(register_module("fc1", linear(hidden_width(config), config.width, device))),
      fc2_(register_module("fc2", linear(config.width, hidden_width(config), device))) {}

at::Tensor FeedForward::forward(const at::Tensor& x) {
  const double dropout = is_training() ? dropout_ : 0.0;
  const at::Tensor hidden = nn::linear(x, fc1_->weight, fc1_->bias, fused_);
  const at::Tensor active = activation_ == Activation::gelu ? nn::gelu_dropout(hidden, dropout, fused_)
                                                            : nn::dropout(at::relu(hidden), dropout, fused_);
  return nn::linear(active, fc2_->weight, fc2_->bias, fused_);
}

Block::Block(const ModelConfig& config, const nn::Fused& fused, at::Device device)
    : ln1(register_module("ln1", norm(config.width, device))),
      ln2(register_module("ln2", norm(config.width, device))),
      attention(register_module("attention", std::make_shared<Attend>(config, fused, device))),
      feed_forward(register_module("feed_forward", std::make_shared<FeedForward>(config, fused, device))) {}

Transformer::Transformer(const ModelConfig& config, std::uint64_t seed, const nn::Fused& fused, at::Device device)
    : config_(config), fused_(fused) {
  if (auto problems = shape_problems(config_); !problems.empty()) throw ConfigError(std::move(problems));
  const auto table = [&](const char* name, std::int64_t rows) {
    auto holder = register_module(name, std::make_shared<torch::nn::Module>());
    return holder->register_module("embedding", linear(rows, config_.width, device, false));
  };
  embedding_ = table("token_embeddings", config_.vocab_size);
  if (config_.learned_positions) position_embedding_ = table("position_embeddings", config_.positions);
  auto list = register_module("transformer_blocks", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    blocks_.push_back(list->register_module(std::to_string(i), std::make_shared<Block>(config_, fused_, device)));
  }
  ln_f_ = register_module("ln_f", norm(config_.width, device));
  if (!config_.tied)
    output_projection_ = register_module("output_projection", linear(config_.vocab_size, config_.width, device, false));
  if (device.type() != at::kMeta) initialise(seed);
}

void Transformer::initialise(std::uint64_t seed) {
  torch::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& named : named_parameters()) {
    at::Tensor& value = named.value();
    if (value.dim() >= 2) {
      value.normal_(0.0, 0.02, generator);
    } else if (named.key().ends_with("weight")) {
      value.fill_(1.0);  // the weight of a norm
    }
  }
}

at::Tensor Transformer::forward(const at::Tensor& tokens, const at::Tensor& padding) {
  MR_CHECK(tokens.dim() == 2 && tokens.size(1) <= config_.positions, "tokens must be (B,T) with T <= positions");
  const double dropout = is_training() ? config_.residual_dropout : 0.0;
  const AttentionMask mask = attention_mask(tokens, padding);
  // `x` is the residual stream. `y` is the norm of `x`, and the input of the next branch. Adding a branch and computing the norm
  // is a single pass over memory.
  at::Tensor x = embed(tokens);
  at::Tensor y = nn::layer_norm(x, blocks_.front()->ln1->weight, blocks_.front()->ln1->bias, kNormEps, fused_);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Affine& next = i + 1 < blocks_.size() ? *blocks_[i + 1]->ln1 : *ln_f_;
    std::tie(x, y) = memory::block("transformer_blocks." + std::to_string(i), *blocks_[i],
                                   [this, &block = *blocks_[i], &next, mask, dropout, x, y] {
                                     const auto middle = add(block.attention->forward(y, mask), x, *block.ln2, dropout);
                                     return add(block.feed_forward->forward(middle.second), middle.first, next, dropout);
                                   });
  }
  return nn::linear(y, config_.tied ? embedding_->weight : output_projection_->weight, {}, fused_);
}

std::pair<at::Tensor, at::Tensor> Transformer::add(const at::Tensor& branch, const at::Tensor& x, const Affine& norm,
                                                   double dropout) const {
  return nn::dropout_add_layer_norm(branch, x, norm.weight, norm.bias, kNormEps, dropout, fused_);
}

at::Tensor Transformer::embed(const at::Tensor& tokens) {
  const double dropout = is_training() ? config_.embedding_dropout : 0.0;
  at::Tensor x = at::embedding(embedding_->weight, tokens);
  if (config_.embedding_scale) x = x * std::sqrt(static_cast<double>(config_.width));
  x = nn::dropout(x, dropout, fused_);
  if (!config_.learned_positions && (!sinusoids_.defined() || sinusoids_.device() != x.device())) {
    sinusoids_ = (nn::sinusoidal_positions(config_.positions, config_.width) * config_.position_scale).to(x.device());
  }
  const at::Tensor& table = config_.learned_positions ? position_embedding_->weight : sinusoids_;
  return nn::dropout(x + table.narrow(0, 0, tokens.size(1)), dropout, fused_);
}

AttentionMask Transformer::attention_mask(const at::Tensor& tokens, const at::Tensor& padding) {
  if (config_.attention == Attention::causal && !padding.defined()) return {};
  AttentionMask mask;
  at::Tensor allowed = causal_mask(tokens.size(1), tokens.device());
  if (padding.defined()) {
    allowed = allowed.logical_and(padding.unsqueeze(1).unsqueeze(1));
    mask.open = allowed.any(-1, /*keepdim=*/true);
  }
  const at::ScalarType type = compute_type(tokens.device(), embedding_->weight.scalar_type());
  mask.additive = at::zeros(allowed.sizes(), at::TensorOptions().dtype(type).device(tokens.device()));
  mask.additive.masked_fill_(allowed.logical_not(), type == at::kHalf ? -1e4 : -1e9);
  return mask;
}

at::Tensor Transformer::causal_mask(std::int64_t length, at::Device device) {
  return caches_masks_ && config_.attention != Attention::math ? masks_.causal(length, device) : make_causal_mask(length, device);
}

at::Device Transformer::device() const { return embedding_->weight.device(); }

void Transformer::to(at::Device device, at::ScalarType dtype, bool non_blocking) {
  clear_mask_cache();
  torch::nn::Module::to(device, dtype, non_blocking);
}

void Transformer::to(at::Device device, bool non_blocking) {
  clear_mask_cache();
  torch::nn::Module::to(device, non_blocking);
}

}  // namespace millrace::recipes::language_model
