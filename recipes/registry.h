// The table of the recipes that come with Millrace.
#pragma once

#include <span>

#include "millrace/train/recipe/entry.h"

namespace millrace::recipes {

[[nodiscard]] std::span<const Entry> all();

}  // namespace millrace::recipes
