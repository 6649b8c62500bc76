// Summaries of arrays' values, for people and programs: `inspect --values` and `show` print them for files and batches.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/json.h"
#include "millrace/cli/inspect/value_stats.h"

namespace millrace::cli {

// An array stored anywhere: `pieces` passes its elements on, in any order, a few megabytes at a time.
struct LyingArray {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::function<void(const std::function<void(std::span<const std::byte>)>& take)> pieces;
};

// {"name", "dtype", "shape", "count", "least", "greatest", "mean", "deviation", "nan", "infinite", "different"}; entries are null
// if there is no finite value, or too many different values.
[[nodiscard]] Json value_json(const std::string& name, const Shape& shape, const ValueSummary& summary);

// Rows for table() in text.h, headings first; `first` is the heading of the names. `values`: results of value_json().
[[nodiscard]] std::vector<std::vector<std::string>> value_rows(const std::string& first, const std::vector<Json>& values);

// A sentence that explains the table's columns to its readers.
inline constexpr const char* kValueNote =
    "least, greatest, mean and deviation are of the finite values; of complex numbers, of "
    "their magnitudes";

}  // namespace millrace::cli
