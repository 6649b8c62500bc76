// Values in the float fields of a batch from which nothing can be learnt: no numbers, and numbers far beyond all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/data/loader/loader.h"

namespace millrace::data {

// The values of one sample's field that are not finite.
struct NotFinite {
  std::size_t group = 0;
  std::int64_t row = 0;  // in the group
  std::string field;
  std::int64_t count = 0, of = 0;  // values: not finite, in all
  Shape first;                     // index of the first of these in the sample
  double value = 0;                // that value, or of a complex number the part that is not finite
};

// Samples in the order of groups, rows and fields.
[[nodiscard]] std::vector<NotFinite> not_finite_in(const HostBatch& batch);
// "field wave: 3,200 of 3,200 values are not finite, the first, nan, at [0,17]".
[[nodiscard]] std::string to_text(const NotFinite& found);

// A field of several rows in host memory, contiguous.
struct FieldValues {
  DType dtype = DType::f32;
  Shape shape;  // of one row
  std::int64_t rows = 0;
  const std::byte* data = nullptr;
};

// An infinite value, or a magnitude of more than kAbsurd times the median of those that are not 0.
struct Absurd {
  std::int64_t row = 0;
  Shape at;          // in the row
  double value = 0;  // the largest magnitude
  double usual = 0;  // the median; 0 for an infinite value
};
inline constexpr double kAbsurd = 1e6;
// The largest magnitude of the field, if it is absurd; nothing for other types than floats. Values that are no numbers are passed
// over: a recipe may mark with them what is missing.
[[nodiscard]] std::optional<Absurd> absurd_in(const FieldValues& field);

}  // namespace millrace::data
