// Makes an HTML page that needs no network, because the page contains its style and its script. Texts are escaped.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::report {

// Escapes a text for use between tags and in attributes. Bytes that are not UTF-8 become U+FFFD, control characters become
// spaces.
[[nodiscard]] std::string escaped(std::string_view text);
[[nodiscard]] std::string base64(std::string_view bytes);

// A <table> of escaped cells; the first row is its heading. A column of numbers is aligned right. The cells of a table without
// such a column are stacked on a phone.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);
struct Part {
  std::string name;
  double value = 0;
  std::string text;  // the value as shown
};
// A bar of the parts with a positive share, and a table of the parts and shares; "" if the shares add up to 0.
[[nodiscard]] std::string shares(const std::vector<Part>& parts);
// <section> with a heading; "" if `html` is empty.
[[nodiscard]] std::string section(std::string_view title, const std::string& html);
// The whole document around the sections. If `reload_s` > 0, the page reloads itself after that many seconds.
[[nodiscard]] std::string page(std::string_view title, const std::string& body, int reload_s = 0);

}  // namespace millrace::report
