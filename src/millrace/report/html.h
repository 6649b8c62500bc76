// A page that needs no network: escaped text, its style and its script.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::report {

// Safe between tags and in attributes; bytes that are not UTF-8 become U+FFFD, control characters become spaces.
[[nodiscard]] std::string escaped(std::string_view text);
[[nodiscard]] std::string base64(std::string_view bytes);

// <table> of escaped cells; the first row is its heading. A column of numbers is aligned right; a table without such a column has
// its cells stacked on a phone.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);
struct Part {
  std::string name;
  double value = 0;
  std::string text;  // the value as shown
};
// A bar of the parts with a positive share, and a table of the parts and shares; "" if they sum to nothing.
[[nodiscard]] std::string shares(const std::vector<Part>& parts);
// <section> with a heading; "" if it is empty.
[[nodiscard]] std::string section(std::string_view title, const std::string& html);
// The whole document around the sections. `reload_s` > 0: it loads itself again after so many seconds.
[[nodiscard]] std::string page(std::string_view title, const std::string& body, int reload_s = 0);

}  // namespace millrace::report
