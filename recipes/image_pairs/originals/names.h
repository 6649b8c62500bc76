// Names of weights in files of other programs. PairModel uses the first names of LLaVA-1.5's files; later versions of the same
// library write others, and tower and decoder are also published alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::recipes::image_pairs {

// "model.language_model.layers.0.…", "model.layers.0.…" (of a decoder alone) -> "language_model.model.layers.0.…" and so on; any
// other name is returned unchanged.
[[nodiscard]] std::string published_name(std::string_view name);
// The newest of these names: modules have it in Python, and adapters in PEFT's files.
[[nodiscard]] std::string module_name(std::string_view published);

// The number of the vision tower's block that the weight belongs to.
[[nodiscard]] std::optional<std::int64_t> vision_block_of(std::string_view published);

// Whether a tensor holds nothing learned, or belongs to the text half of a CLIP model.
[[nodiscard]] bool is_of_no_use(std::string_view published);

}  // namespace millrace::recipes::image_pairs
