// Measures for each unit how much information predicted rates carry about counts of events.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace::metrics {

// Sums over the rows for each unit, (4, units) in double: mask, mask y, mask y ln(r + 1e-8), mask r. counts y, rates r and mask
// are [rows, units]. The sums are detached and stay on their device. Sums of several batches can be added up.
[[nodiscard]] at::Tensor information_sums(const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask);

// Bits per event of each unit, by the formula of Board::add_bits_per_event without its final clamp. The result is below 0 if the
// rates are worse than the mean count, and NaN if the unit has no event or no bin. `sums`: 4 rows of `units` numbers.
[[nodiscard]] std::vector<double> bits_per_event(const double* sums, std::size_t units);

}  // namespace millrace::metrics
