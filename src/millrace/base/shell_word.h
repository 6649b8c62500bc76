// Words of commands that messages give to people.
#pragma once

#include <string>

namespace millrace {

// The text as one word of a POSIX shell, in quotes where it needs them.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace millrace
