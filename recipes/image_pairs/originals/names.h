// The names of weights in files of other programs. PairModel uses the names of the first LLaVA-1.5 files. Later versions of the
// library that wrote those files use other names. Some files have only a tower or only a decoder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace::recipes::image_pairs {

// Returns the name that a weight has in PairModel: "model.language_model.layers.0.…" and "model.layers.0.…" (in the file of a
// decoder) become "language_model.model.layers.0.…", and so on. Unknown names are returned unchanged.
[[nodiscard]] std::string published_name(std::string_view name);
// Returns the newest name of a weight, as modules in Python and adapters in PEFT's files have it.
[[nodiscard]] std::string module_name(std::string_view published);

// Returns the number of the block of the vision tower to which the weight belongs; nullopt if the weight is not in such a block.
[[nodiscard]] std::optional<std::int64_t> vision_block_of(std::string_view published);

// True if the model does not need the tensor, because it was not learned or belongs to the text half of a CLIP model.
[[nodiscard]] bool is_of_no_use(std::string_view published);

}  // namespace millrace::recipes::image_pairs
