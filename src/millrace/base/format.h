// Text for people. This header hides fmt: LibTorch's include folder holds another version of fmt, which would shadow Debian's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

[[nodiscard]] std::string with_commas(std::int64_t value);  // 1,115,394
[[nodiscard]] std::string human_bytes(double bytes);        // "3.1 GB" (powers of 1000), "812 kB", "17 B"
[[nodiscard]] std::string human_duration(double seconds);   // "0.8 s", "42 s", "3 min 10 s", "2 h 05 min", "3 d 4 h"
[[nodiscard]] std::string human_rate(double per_second);    // "18.4k", "3.21M", "742", "0.52"
[[nodiscard]] std::string fixed(double value, int digits);  // 2.3170; "nan", "inf" or "-inf" for a value that is not finite
[[nodiscard]] std::string significant(double value,
                                      int digits);  // the shortest form with at most `digits` significant digits: 3e-04, 12.4
// Like significant(), but no later version changes the form, because these texts are stored and compared with later ones:
// 1e-03, 0.0523, 12.4.
[[nodiscard]] std::string lasting(double value, int digits);
// A measured number for people, four to six significant digits: 0.05230, 2.3170, 1234.57, 1.235e-04.
[[nodiscard]] std::string figure(double value);
[[nodiscard]] std::string percent(double fraction, int digits = 0);  // "12 %"
[[nodiscard]] std::string quoted(std::string_view text);             // "…" with control bytes and invalid UTF-8 escaped
// Overloads for std::string: without them, argument-dependent lookup would find std::quoted of <iomanip> first.
[[nodiscard]] inline std::string quoted(const std::string& text) { return quoted(std::string_view(text)); }
[[nodiscard]] inline std::string quoted(std::string& text) { return quoted(std::string_view(text)); }
[[nodiscard]] inline std::string quoted(const char* text) { return quoted(std::string_view(text)); }
// Returns `text` if it is one line of plain text, else `text` in quotes. For names in tables: a file system allows any bytes in a
// name.
[[nodiscard]] std::string printable(std::string_view text);
// Returns the words of a range with a separator between them. `word` turns an element into its word, as in joined(fields, ", ",
// &Field::name).
template <class Range, class Word = std::identity>
[[nodiscard]] std::string joined(const Range& range, std::string_view separator, Word word = {}) {
  std::string text;
  bool first = true;
  for (const auto& each : range) {
    if (!first) text += separator;
    text += std::invoke(word, each);
    first = false;
  }
  return text;
}
// Joins the parts with `gap` between them, as many to a line as fit into `width` columns. Each further line begins with `indent`.
[[nodiscard]] std::string wrapped(const std::vector<std::string>& parts, std::string_view gap, std::size_t width,
                                  std::string_view indent);
// Returns the candidate nearest to `word` by Damerau-Levenshtein distance; "" if no candidate is near enough to suggest.
[[nodiscard]] std::string nearest(std::string_view word, const std::string* begin, const std::string* end);

// Returns a table as text. Columns are padded to their widest cell and stand two spaces apart. A column is aligned right if each
// of its cells below the first row is empty or begins with a digit, sign or dash.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace millrace
