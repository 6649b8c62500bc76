// A vision transformer in the style of CLIP (Radford et al. 2021, arXiv:2103.00020), up to the block whose output is used.
#pragma once

#include <memory>
#include <vector>

#include "recipes/image_pairs/network.h"

namespace millrace::recipes::image_pairs {

// The number of blocks that are built: those up to recipe.vision_feature_layer.
[[nodiscard]] std::int64_t built_vision_blocks(const RecipeConfig& config);

// recipe.vision_activation; if that is auto, quick_gelu.
[[nodiscard]] Activation activation_of(const RecipeConfig& config);

struct VisionBlock;

// Its children are named like the weights under "vision_tower" in a published file.
class VisionTower : public torch::nn::Module {
 public:
  VisionTower(const RecipeConfig& config, const Projecting& projecting, const Making& how);
  ~VisionTower() override;
  // Returns features (n, P, d_v) fp32 of pixels (n, 3, S, S); patches are ordered from left to right and from top to bottom. If
  // gradients are recorded, the memory blocks (memory/block.h) are "vision.layers.0" and so on.
  at::Tensor forward(const at::Tensor& pixels);

 private:
  at::Tensor embed(const at::Tensor& pixels) const;
  std::int64_t patch_;
  std::int64_t heads_;
  Projecting projecting_;
  at::Tensor class_embedding_;
  std::shared_ptr<Weight> patch_embedding_, position_embedding_;
  std::shared_ptr<LayerNorm> pre_norm_;
  std::vector<std::shared_ptr<VisionBlock>> blocks_;
};

}  // namespace millrace::recipes::image_pairs
