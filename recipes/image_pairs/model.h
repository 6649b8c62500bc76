// A frozen vision tower (CLIP), a projector and a causal decoder (LLaMA) with low-rank adapters (Hu et al. 2021,
// arXiv:2106.09685), which read a prompt of two images and a question and answer with one of three words. Parameters carry the
// names of the published LLaVA-1.5 files ("vision_tower.vision_model.…", "multi_modal_projector.…", "language_model.…"); an
// adapter has its projection's name followed by ".lora_A.weight" and ".lora_B.weight".
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

// Faults that no network can have: heads that do not divide a width, an odd width of a decoder's head, patches that do not fill
// the image, a missing feature layer, adapters on missing projections.
[[nodiscard]] std::vector<Problem> shape_problems(const RecipeConfig& config);

// Number of parameters of each part: closed forms for any size, without allocating anything.
struct Counts {
  double vision = 0;            // of the built blocks
  double vision_published = 0;  // of all blocks and the last norm
  double projector = 0, decoder = 0, lora = 0;
  [[nodiscard]] double total() const { return vision + projector + decoder + lora; }
  [[nodiscard]] double trained(bool frozen_base) const { return frozen_base ? projector + lora : total(); }
};
[[nodiscard]] Counts parameter_counts(const RecipeConfig& config);

enum class Part : std::uint8_t { vision, projector, decoder, lora };
[[nodiscard]] Part part_of(std::string_view parameter);  // by its name

class VisionTower;
class Projector;
class LanguageModel;

class PairModel : public torch::nn::Module {
 public:
  // Weights are a function of `seed`; on the meta device they have shapes only. `frozen`: tower and decoder require no gradient
  // and have `base_type`. If recipe.base_weights is set, tower and decoder are uninitialised until load_base() (base_weights.h)
  // fills them. ConfigError if the sizes do not fit together.
  explicit PairModel(const RecipeConfig& config, std::uint64_t seed = 0, bool frozen = false, const nn::Fused& fused = {},
                     at::Device device = at::kCPU, at::ScalarType base_type = at::kFloat);

  // Pixels (n, 3, S, S) f32, normalised -> the tower's features of their patches (n, P, d_v). Without gradient if it is frozen.
  at::Tensor features(const at::Tensor& pixels);
  // `features` (n, P, d_v); `images` (R, 2) int64: each row's first and second image in `features`; `prompts` has R rows or one
  // for all. Returns logits (R, 3) fp32 of First, Second, Similar, from the last position of each prompt. Memory blocks:
  // "decoder.layers.0" and so on; "vision.layers.0" and so on for a tower with a gradient.
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
