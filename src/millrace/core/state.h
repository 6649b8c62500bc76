// Joins the states of several parts into one and takes them apart again.
#pragma once

#include <string_view>

#include "millrace/core/batch.h"

namespace millrace {

// Puts `part` into `whole` under `prefix`: tensors become "<prefix>.<name>", the JSON becomes whole.json[prefix]. A tensor that
// is already there is an InternalError.
void merge(State& whole, std::string_view prefix, State part);

// The part that merge() put under `prefix`; empty if there is none. Tensors are shared, not copied.
[[nodiscard]] State split(const State& whole, std::string_view prefix);

}  // namespace millrace
