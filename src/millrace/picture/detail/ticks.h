// Where an axis has its marks, and what is written at them.
#pragma once

#include <string>
#include <vector>

#include "millrace/picture/draw.h"

namespace millrace::picture::detail {

struct Tick {
  double value = 0;
  std::string label;  // empty: a small mark between others
};

struct Ticks {
  Range range;
  bool logarithmic = false;
  std::vector<Tick> marks;
  int exponent = 0;                                // labels are multiples of ten to this power
  [[nodiscard]] double share(double value) const;  // of the way from low to high; NaN where a logarithm has no value
};

// At most `most` labels of 1, 2 or 5 times a power of ten in a range; `whole`: of whole numbers only. A range of no width is
// widened; a huge one is bounded to what double can tell apart.
[[nodiscard]] Ticks linear_ticks(Range range, int most, bool whole = false);
// At powers of ten; 2 and 5 times them where the range is short. low > 0.
[[nodiscard]] Ticks log_ticks(Range range, int most);

// What is finite (and above zero, for a logarithmic axis) of many values. Kept even where there is nothing: see any.
struct Span {
  double low = 0, high = 0;
  std::int64_t used = 0, left_out = 0;
  void add(double value, bool logarithmic = false);
  [[nodiscard]] bool any() const { return used > 0; }
};

// "frequency (MHz)", "signal (10⁻⁵ K)", "share".
[[nodiscard]] std::string axis_text(const Axis& axis, int exponent);
// 10⁻⁵ without the ten: superscript digits.
[[nodiscard]] std::string superscript(int exponent);

}  // namespace millrace::picture::detail
