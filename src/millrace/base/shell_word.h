// Words of commands that people copy from a message into their shell.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// As a word of a POSIX shell, in quotes where it needs them; fish takes it too where it holds no backslash.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace millrace
