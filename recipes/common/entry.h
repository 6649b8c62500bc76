// Parts of registry rows that several recipes share.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/train/recipe/entry.h"

namespace millrace::recipes {

// The size of a preset's sample data. Throws ConfigError if the preset has no sample data: "preset X has no sample WHAT".
template <class Size>
[[nodiscard]] Size sample_size(std::optional<Size> size, const std::string& preset, const std::string& what) {
  if (!size)
    throw ConfigError(Message{"preset " + preset + " has no sample " + what, "preset " + preset, "choose smoke, small or full"});
  return *std::move(size);
}

// The advice that all guides give: read with several processes, and keep samples in memory. `claim`: the gain that the guide
// promises.
[[nodiscard]] inline Advice loading_in_parallel(std::string claim) {
  return {"loading in parallel, samples kept",
          {"loader_threads", "loader_adaptation", "look_ahead", "sample_cache", "hdf5_direct", "file_index", "token_cache"},
          std::move(claim)};
}

}  // namespace millrace::recipes
