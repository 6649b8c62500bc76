// The values of arrays, for people and for programs: what `inspect --values` and `show` say of files and of batches.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/json.h"
#include "millrace/base/value_stats.h"

namespace millrace::cli {

// An array that lies somewhere: `pieces` hands its elements on, in any order, a few megabytes at a time.
struct LyingArray {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::function<void(const std::function<void(std::span<const std::byte>)>& take)> pieces;
};

// {"name", "dtype", "shape", "count", "least", "greatest", "mean", "deviation", "nan", "infinite", "different"}; null where there
// is no finite value, and where there are too many different ones.
[[nodiscard]] Json value_json(const std::string& name, const Shape& shape, const ValueSummary& summary);

// Rows for table() in text.h, the headings first; `first` heads the column of names. Of such values:
[[nodiscard]] std::vector<std::vector<std::string>> value_rows(const std::string& first, const std::vector<Json>& values);

// One sentence for those who read a table: what the columns are of.
inline constexpr const char* kValueNote =
    "least, greatest, mean and deviation are of the finite values; of complex numbers, of "
    "their magnitudes";

}  // namespace millrace::cli
