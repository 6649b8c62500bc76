#include "millrace/base/shell_word.h"

namespace millrace {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+,:@%=";
  // A word that begins with = is quoted, because zsh would replace it by a program's path.
  if (!text.empty() && text[0] != '=' && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string_view("'\\''") : std::string_view(&c, 1);
  return word + "'";
}

}  // namespace millrace
