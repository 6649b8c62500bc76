// A decoder in the style of GPT-2: norms before the branches, sinusoidal positions, output weights tied to the embedding.
// Parameters have the names that AGI2 (the program that this recipe follows) gives them, so that safetensors can be moved in
// both directions.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/nn/functional.h"
#include "recipes/language_model/config.h"
#include "recipes/language_model/mask_cache.h"

namespace millrace::recipes::language_model {

struct ModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t positions = 1024;  // the longest input
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t hidden = 0;  // width of the feed-forward layers; 0 = 4 * width
  Activation activation = Activation::gelu;
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;
  double residual_dropout = 0.1;
  bool tied = true;
  bool embedding_scale = true;
  bool learned_positions = false;
  double position_scale = 1.0;  // factor of the sinusoids
  Attention attention = Attention::causal;
};

[[nodiscard]] ModelConfig model_config(const RecipeConfig& recipe, std::int64_t vocab_size);
// Returns the faults that make a model impossible: a number of heads that does not divide the width, an odd width.
[[nodiscard]] std::vector<Problem> shape_problems(const ModelConfig& config);
// The number of parameters: V d + L (4(d^2+d) + (d f + f) + (f d + d) + 4d) + 2d [+ V d untied] [+ T d learned positions], f =
// hidden.
[[nodiscard]] std::int64_t parameter_count(const ModelConfig& config);
struct ModelSize {
  double parameters;
  double bytes;  // bytes of the model and its table of positions, without gradients
};
// The size of the model of any config, even of a model that would not fit into memory.
[[nodiscard]] ModelSize size_of_model(const ModelConfig& config);

// A weight and an optional bias with torch's names but without torch's initialisation.
struct Affine : torch::nn::Module {
  Affine(std::vector<std::int64_t> weight_shape, bool with_bias, at::Device device);
  at::Tensor weight;
  at::Tensor bias;  // undefined if there is no bias
};

// The masks of the explicit attention path.
struct AttentionMask {
  at::Tensor additive;  // (T,T) or (B,1,T,T), added to the scores; undefined = plain causal attention, which needs no mask
  at::Tensor open;      // (B,1,T,1), true where a row may attend to at least one position; undefined = true for all rows
};

class Attend : public torch::nn::Module {
 public:
  Attend(const ModelConfig& config, const nn::Fused& fused, at::Device device);
  at::Tensor forward(const at::Tensor& x, const AttentionMask& mask);

 private:
  at::Tensor masked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionMask& mask);
  std::int64_t heads_;
  double dropout_;
  bool textbook_;
  nn::Fused fused_;
  std::shared_ptr<Affine> w_q_, w_k_, w_v_, w_o_;
};

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const ModelConfig& config, const nn::Fused& fused, at::Device device);
  at::Tensor forward(const at::Tensor& x);

 private:
  Activation activation_;
  double dropout_;
  nn::Fused fused_;
  std::shared_ptr<Affine> fc1_, fc2_;
};

// The two branches of a block, and the weights of their norms. Transformer::forward() computes the norms, because adding a
// branch and computing the next norm is a single pass over memory.
struct Block : torch::nn::Module {
  Block(const ModelConfig& config, const nn::Fused& fused, at::Device device);
  std::shared_ptr<Affine> ln1, ln2;
  std::shared_ptr<Attend> attention;
  std::shared_ptr<FeedForward> feed_forward;
};

class Transformer : public torch::nn::Module {
 public:
  // The weights depend only on `seed`; on the meta device they have shapes but no values. Throws ConfigError if the sizes do not
  // fit together.
  explicit Transformer(const ModelConfig& config, std::uint64_t seed = 0, const nn::Fused& fused = {},
                       at::Device device = at::kCPU);

  // Returns logits (B,T,V) for tokens (B,T) int64, T <= positions. `padding` (B,T) is true at real tokens; if it is given,
  // attention uses the explicit path, and rows before the first real token give zeros. Memory blocks (memory/block.h) are
  // transformer_blocks.0 and so on.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& padding = {});

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] at::Device device() const;

  // Drops the causal masks of the explicit attention path. The usual path needs no mask.
  void clear_mask_cache() noexcept { masks_.clear(); }
  [[nodiscard]] std::size_t mask_cache_size() const noexcept { return masks_.size(); }
  [[nodiscard]] std::int64_t mask_cache_bytes() const noexcept { return masks_.bytes(); }
  // The mask of the explicit path. Made once for each length and device, unless the cache is off (for measurements).
  at::Tensor causal_mask(std::int64_t length, at::Device device);
  void use_mask_cache(bool on) noexcept { caches_masks_ = on; }

  // Moving the model drops its masks, because the masks stay on the old device.
  using torch::nn::Module::to;
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;

 private:
  at::Tensor embed(const at::Tensor& tokens);
  // Adds a branch to the residual stream x. Returns the new stream and its norm.
  std::pair<at::Tensor, at::Tensor> add(const at::Tensor& branch, const at::Tensor& x, const Affine& norm, double dropout) const;
  AttentionMask attention_mask(const at::Tensor& tokens, const at::Tensor& padding);
  void initialise(std::uint64_t seed);

  ModelConfig config_;
  nn::Fused fused_;
  MaskCache masks_;
  bool caches_masks_ = true;
  at::Tensor sinusoids_;  // neither a parameter nor saved, because the sinusoids depend only on their shape
  std::shared_ptr<Affine> embedding_, position_embedding_, ln_f_, output_projection_;
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace millrace::recipes::language_model
