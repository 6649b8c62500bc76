// A frozen vision tower (CLIP), a projector and a causal decoder (LLaMA) with low-rank adapters (Hu et al. 2021,
// arXiv:2106.09685). Together they read a prompt of two images and a question, and answer with one of three words. Parameters
// have the names of the published LLaVA-1.5 files ("vision_tower.vision_model.…", "multi_modal_projector.…", "language_model.…").
// An adapter's parameters have the name of its projection with ".lora_A.weight" and ".lora_B.weight".
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/nn/decoder.h"
#include "recipes/image_pairs/config.h"
#include "recipes/image_pairs/prompt.h"

namespace millrace::recipes::image_pairs {

// Returns the faults that make a network impossible: a number of heads that does not divide the width, a decoder whose heads
// have an odd width, patches that do not fill the image, a missing feature layer, adapters for missing projections.
[[nodiscard]] std::vector<Problem> shape_problems(const RecipeConfig& config);

// The number of parameters of each part. Computed by formulas, so it works for any size and allocates nothing.
struct Counts {
  double vision = 0;            // parameters of the tower, with only the blocks that are built
  double vision_published = 0;  // parameters of the tower as published, with all blocks and the last norm
  double projector = 0, decoder = 0, lora = 0;
  [[nodiscard]] double total() const { return vision + projector + decoder + lora; }
  [[nodiscard]] double trained(bool frozen_base) const { return frozen_base ? projector + lora : total(); }
};
[[nodiscard]] Counts parameter_counts(const RecipeConfig& config);

enum class Part : std::uint8_t { vision, projector, decoder, lora };
[[nodiscard]] Part part_of(std::string_view parameter);  // the part to which the parameter of this name belongs

class VisionTower;
class Projector;
class LanguageModel;

class PairModel : public torch::nn::Module {
 public:
  // The weights depend only on `seed`; on the meta device they have shapes but no values. `frozen`: tower and decoder require no
  // gradient and have the type `base_type`. If recipe.base_weights is set, tower and decoder are not initialised, and
  // load_base() (base_weights.h) must fill them. Throws ConfigError if the sizes do not fit together.
  explicit PairModel(const RecipeConfig& config, std::uint64_t seed = 0, bool frozen = false, const nn::Fused& fused = {},
                     at::Device device = at::kCPU, at::ScalarType base_type = at::kFloat);

  // Returns the tower's features of patches, (n, P, d_v), for normalised pixels (n, 3, S, S) f32. If the tower is frozen, the
  // features have no gradient.
  at::Tensor features(const at::Tensor& pixels);
  // Returns logits (R, 3) fp32 of First, Second and Similar, taken from the last position of each prompt. `features` (n, P,
  // d_v). `images` (R, 2) int64: the first and the second image of each row, as indices into `features`. `prompts` has R rows,
  // or one row for all. Memory blocks (memory/block.h) are "decoder.layers.0" and so on and, if the tower has a gradient,
  // "vision.layers.0" and so on.
  at::Tensor forward(at::Tensor features, const at::Tensor& images, const Prompts& prompts);

  [[nodiscard]] bool frozen() const noexcept { return frozen_; }
  [[nodiscard]] const RecipeConfig& config() const noexcept { return config_; }
  [[nodiscard]] at::Device device() const;

 private:
  RecipeConfig config_;
  bool frozen_;
  std::shared_ptr<VisionTower> tower_;
  std::shared_ptr<Projector> projector_;
  std::shared_ptr<LanguageModel> decoder_;
};

}  // namespace millrace::recipes::image_pairs
