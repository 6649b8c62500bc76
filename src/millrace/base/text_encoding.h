// Finds files that should be UTF-8 text but are not, guesses from their bytes what they hold, and says how to convert them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct NoText {
  std::string is;        // follows the file's name in a message: "is UTF-16 text with a byte-order mark, not UTF-8"
  std::size_t byte = 0;  // offset of the first byte that shows the problem, in the bytes that were examined
  std::string next;      // a command that replaces the file by UTF-8 text, or advice if there is no such command
};

// Checks whether a file's first bytes are 16-bit or 32-bit text, compressed data or an office document. Returns nullopt for all
// other bytes.
[[nodiscard]] std::optional<NoText> other_than_text(std::string_view start, const std::filesystem::path& path);
// Returns the offset in `piece` of the first byte that can't be part of text, because it is a NUL or not UTF-8; nullopt if all
// bytes are text.
[[nodiscard]] std::optional<std::size_t> first_byte_of_no_text(std::string_view piece) noexcept;
// Describes a file that is not text. `piece` is a part of the file, and its byte at offset `bad` can't be part of text.
[[nodiscard]] NoText broken_text(std::string_view piece, std::size_t bad, const std::filesystem::path& path);
// Returns the problem that the functions above find in the text of a whole file; nullopt if the file is UTF-8 text.
[[nodiscard]] std::optional<NoText> problem_of_text(std::string_view text, const std::filesystem::path& path);

}  // namespace millrace
