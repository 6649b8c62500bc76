#include "millrace/base/shell_word.h"

#include <string_view>

namespace millrace {

using namespace std::string_view_literals;

std::string shell_word(const std::string& text) {
  constexpr auto kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+,:@%"sv;
  if (!text.empty() && text[0] != '-' && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace millrace
