// A causal decoder in the style of LLaMA that answers with one of three words.
#pragma once

#include <memory>
#include <vector>

#include "recipes/image_pairs/network.h"
#include "recipes/image_pairs/prompt.h"

namespace millrace::recipes::image_pairs {

struct DecoderBlock;

// Its children are named like the weights under "language_model" in a published file.
class LanguageModel : public torch::nn::Module {
 public:
  LanguageModel(const RecipeConfig& config, const Projecting& projecting, const Making& how);
  ~LanguageModel() override;
  // Returns logits (R, 3) fp32. `images` (n, P, d) replace image tokens; `which` (R, 2) int64 selects the two images of each
  // row.
  at::Tensor forward(at::Tensor images, const at::Tensor& which, const Prompts& prompts);

 private:
  struct Stream {
    at::Tensor x, y;  // x: the residual stream; y: x after the norm
  };
  at::Tensor embed(const at::Tensor& images, const at::Tensor& which, const Prompts& prompts) const;
  [[nodiscard]] Stream run(const DecoderBlock& block, const at::Tensor& next_norm, Stream in) const;
  // The positions that a block computes if only one position of each row is needed.
  struct Last {
    at::Tensor positions;  // (R) int64
    at::Tensor rows;       // (R) indices into all rows and positions flattened into one axis; undefined: each row's last
                           // position is used
  };
  [[nodiscard]] Last last_of(const Prompts& prompts, std::int64_t rows) const;
  [[nodiscard]] Stream run_at(const DecoderBlock& block, const at::Tensor& next_norm, Stream in, const Last& last) const;
  [[nodiscard]] Stream finish(const DecoderBlock& block, const at::Tensor& mixed, at::Tensor x,
                              const at::Tensor& next_norm) const;
  const nn::Rotary& rotary(std::int64_t length, at::Device device);

  std::int64_t heads_, head_width_;
  double rope_base_;
  Projecting projecting_;
  std::vector<std::int64_t> answers_;
  at::Tensor answer_rows_;  // rows of the output matrix for the three answers, on the device of the weights
  nn::Rotary rotary_;
  std::shared_ptr<Weight> embed_tokens_, norm_, lm_head_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
};

}  // namespace millrace::recipes::image_pairs
