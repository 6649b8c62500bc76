// Chooses where an axis has its ticks, and their labels.
#pragma once

#include <string>
#include <vector>

#include "millrace/picture/draw.h"

namespace millrace::picture::detail {

struct Tick {
  double value = 0;
  std::string label;  // "": a small mark without a label
};

struct Ticks {
  Range range;
  bool logarithmic = false;
  std::vector<Tick> marks;
  int exponent = 0;                                // labels are multiples of ten to this power
  [[nodiscard]] double share(double value) const;  // the value's position: 0 is low, 1 is high; NaN if it has no logarithm
};

// Returns ticks with at most `most` labels, at multiples of 1, 2 or 5 times a power of ten; with `whole` only at whole numbers.
// A range without width is widened; a huge range is reduced to what double can resolve.
[[nodiscard]] Ticks linear_ticks(Range range, int most, bool whole = false);
// Returns ticks with labels at powers of ten and, if the range is short, also at 2 and 5 times these. low > 0.
[[nodiscard]] Ticks log_ticks(Range range, int most);

// The range of the finite values (of those above zero, for a logarithmic axis). `any` is false if there are no such values.
struct Span {
  double low = 0, high = 0;
  std::int64_t used = 0, left_out = 0;
  void add(double value, bool logarithmic = false);
  [[nodiscard]] bool any() const { return used > 0; }
};

// Returns the label of an axis: "frequency (MHz)", "signal (10⁻⁵ K)", "share".
[[nodiscard]] std::string axis_text(const Axis& axis, int exponent);
// Returns an exponent in superscript digits, such as the ⁻⁵ of 10⁻⁵.
[[nodiscard]] std::string superscript(int exponent);

}  // namespace millrace::picture::detail
