// One page without a network: escaped text, its style and its script.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::report {

// Safe between tags and in attributes; bytes that are no UTF-8 become U+FFFD, control characters spaces.
[[nodiscard]] std::string escaped(std::string_view text);
[[nodiscard]] std::string base64(std::string_view bytes);

// <table> of escaped cells, the first row its heading. A column of numbers stands to the right; a table without one has its rows
// one cell below the other on a phone.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);
struct Part {
  std::string name;
  double value = 0;
  std::string text;  // how the value is said
};
// A bar of the parts that have a share, and a table of them with their shares; "" when they sum to nothing.
[[nodiscard]] std::string shares(const std::vector<Part>& parts);
// <section> with a heading; "" when there is nothing in it.
[[nodiscard]] std::string section(std::string_view title, const std::string& html);
// The whole document around the sections.
[[nodiscard]] std::string page(std::string_view title, const std::string& body);

}  // namespace millrace::report
