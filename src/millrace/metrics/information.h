// How much predicted rates tell of counts of events, per unit.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace::metrics {

// Sums over rows for each unit, (4, units) in double: mask, mask y, mask y ln(r + 1e-8), mask r. counts y, rates r and mask:
// [rows, units]. Detached; on their device; add them up over batches.
[[nodiscard]] at::Tensor information_sums(const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask);

// Bits per event of each unit, by the formula of Board::add_bits_per_event but for its last clamp: below 0 where the rates are
// worse than the mean count, NaN where the unit has no event or no bin. `sums`: 4 rows of `units` numbers.
[[nodiscard]] std::vector<double> bits_per_event(const double* sums, std::size_t units);

}  // namespace millrace::metrics
