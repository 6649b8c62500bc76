// Quotes words for commands that people copy from a message into their shell.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Returns `text` as a word of a POSIX shell, quoted if needed. The shell fish reads the result in the same way unless `text`
// holds a backslash.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace millrace
