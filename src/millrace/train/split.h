// Batches cut into micro-steps.
#pragma once

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace {

// How many parts `wish` comes to for this batch: no part is left without a row of any group. At least 1.
[[nodiscard]] std::int64_t parts_of(const Batch& batch, std::int64_t wish);

// Rows [n i / parts, n (i + 1) / parts) of each of its groups: views, in the batch's order.
[[nodiscard]] Batch part_of(const Batch& batch, std::int64_t i, std::int64_t parts);

// The same. The whole batch, where it has one part, is moved out of `batch`: what prepares it may free it.
[[nodiscard]] Batch take_part(Batch& batch, std::int64_t i, std::int64_t parts);

}  // namespace millrace
