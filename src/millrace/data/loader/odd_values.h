// Finds values from which a network can't learn, in the float fields of a batch: values that are not finite, and values far
// beyond all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/data/loader/loader.h"

namespace millrace::data {

// The values in a field of a sample that are not finite.
struct NotFinite {
  std::size_t group = 0;
  std::int64_t row = 0;  // number of the row in the group
  std::string field;
  std::int64_t count = 0, of = 0;  // number of values that are not finite, and number of all values
  Shape first;                     // index in the sample of the first value that is not finite
  double value = 0;                // the first value that is not finite; of a complex number, the part that is not finite
};

// Finds all values in the batch that are not finite, in the order of groups, rows and fields.
[[nodiscard]] std::vector<NotFinite> not_finite_in(const HostBatch& batch);
// Returns a line such as "field wave: 3,200 of 3,200 values are not finite, the first, nan, at [0,17]".
[[nodiscard]] std::string to_text(const NotFinite& found);

// The values of a field in several rows, contiguous in host memory.
struct FieldValues {
  DType dtype = DType::f32;
  Shape shape;  // shape of the field in one row
  std::int64_t rows = 0;
  const std::byte* data = nullptr;
};

// A value that is infinite, or whose magnitude is more than kAbsurd times the median magnitude. The median leaves out zeros and
// infinities; if there are many values, it is taken over an evenly spaced sample of them.
struct Absurd {
  std::int64_t row = 0;
  Shape at;          // index of the value in its row
  double value = 0;  // the largest magnitude
  double usual = 0;  // the median magnitude; 0 if `value` is infinite
};
inline constexpr double kAbsurd = 1e6;
// Returns the value of largest magnitude in the field, if that value is absurd; nullopt for types that are not floats. NaN
// values are ignored, because a recipe may use them to mark missing data.
[[nodiscard]] std::optional<Absurd> absurd_in(const FieldValues& field);

}  // namespace millrace::data
