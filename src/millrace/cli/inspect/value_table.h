// Summaries of the values of arrays, for people and for programs: `inspect --values` prints them for files, `show` for batches.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/json.h"
#include "millrace/cli/inspect/value_stats.h"

namespace millrace::cli {

// An array in a file or in memory. `pieces` calls `take` with all elements, in pieces of a few megabytes and in any order.
struct LyingArray {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::function<void(const std::function<void(std::span<const std::byte>)>& take)> pieces;
};

// {"name", "dtype", "shape", "count", "least", "greatest", "mean", "deviation", "nan", "infinite", "different"}. The four
// members from "least" to "deviation" are null if there is no finite value. "different" is null if ValueSummary::distinct has no
// value.
[[nodiscard]] Json value_json(const std::string& name, const Shape& shape, const ValueSummary& summary);

// The rows for table() in text.h, the headings first. `first`: the heading of the names. `values`: results of value_json().
[[nodiscard]] std::vector<std::vector<std::string>> value_rows(const std::string& first, const std::vector<Json>& values);

// A sentence for users that explains the table's columns.
inline constexpr const char* kValueNote =
    "least, greatest, mean and deviation cover the finite values; for complex numbers, their magnitudes";

}  // namespace millrace::cli
