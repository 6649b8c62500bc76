#include "recipes/image_pairs/originals/names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace millrace::recipes::image_pairs {
namespace {

constexpr std::string_view kVisionBlock = "vision_tower.vision_model.encoder.layers.";

using Renamed = std::pair<std::string_view, std::string_view>;

// Prefixes of names, and their replacements in PairModel. The first prefix that fits is used.
constexpr std::array<Renamed, 14> kBeginnings{{{"model.vision_tower.vision_model.", "vision_tower.vision_model."},
                                               {"model.vision_tower.", "vision_tower.vision_model."},
                                               {"vision_tower.vision_model.", "vision_tower.vision_model."},
                                               {"vision_tower.", "vision_tower.vision_model."},
                                               {"vision_model.", "vision_tower.vision_model."},
                                               {"model.multi_modal_projector.", "multi_modal_projector."},
                                               {"language_model.", "language_model."},
                                               {"model.language_model.model.", "language_model.model."},
                                               {"model.language_model.lm_head.", "language_model.lm_head."},
                                               {"model.language_model.", "language_model.model."},
                                               {"model.embed_tokens.", "language_model.model.embed_tokens."},
                                               {"model.layers.", "language_model.model.layers."},
                                               {"model.norm.", "language_model.model.norm."},
                                               {"lm_head.", "language_model.lm_head."}}};

constexpr std::array<Renamed, 4> kModules{{{"vision_tower.vision_model.", "model.vision_tower."},
                                           {"multi_modal_projector.", "model.multi_modal_projector."},
                                           {"language_model.model.", "model.language_model."},
                                           {"language_model.lm_head.", "lm_head."}}};

template <std::size_t N>
std::string renamed(std::string_view name, const std::array<Renamed, N>& beginnings) {
  const auto it = std::ranges::find_if(beginnings, [&](const Renamed& begins) { return name.starts_with(begins.first); });
  if (it == beginnings.end()) return std::string(name);
  return std::string(it->second) + std::string(name.substr(it->first.size()));
}

}  // namespace

std::string published_name(std::string_view name) { return renamed(name, kBeginnings); }

std::string module_name(std::string_view published) { return renamed(published, kModules); }

std::optional<std::int64_t> vision_block_of(std::string_view published) {
  if (!published.starts_with(kVisionBlock)) return std::nullopt;
  const std::string_view rest = published.substr(kVisionBlock.size());
  std::int64_t block = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), block);
  return error == std::errc() && end != rest.data() + rest.size() && *end == '.' ? std::optional(block) : std::nullopt;
}

bool is_of_no_use(std::string_view published) {
  return published.ends_with(".position_ids") || published.ends_with("rotary_emb.inv_freq") ||
         published.starts_with("text_model.") || published.starts_with("text_projection.") ||
         published.starts_with("visual_projection.") || published == "logit_scale";
}

}  // namespace millrace::recipes::image_pairs
