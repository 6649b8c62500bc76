// Files that should be UTF-8 text and are not: what their bytes are, as far as they tell, and what makes such text of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct NoText {
  std::string is;        // "is UTF-16 text with a byte-order mark, not UTF-8": what follows the file's name
  std::size_t byte = 0;  // of the given bytes, where it shows
  std::string next;      // a command that puts UTF-8 text in the file's place, or what to do where there is no such command
};

// Of a file's first bytes: text of 16 or 32 bits, compressed data, a document of an office program. nullopt for all else.
[[nodiscard]] std::optional<NoText> other_than_text(std::string_view start, const std::filesystem::path& path);
// The first byte of a piece that no text has: one that is not UTF-8, or a NUL. nullopt when there is none.
[[nodiscard]] std::optional<std::size_t> first_byte_of_no_text(std::string_view piece) noexcept;
// What a piece is that has such a byte, `bad`.
[[nodiscard]] NoText broken_text(std::string_view piece, std::size_t bad, const std::filesystem::path& path);
// All three of a whole file.
[[nodiscard]] std::optional<NoText> problem_of_text(std::string_view text, const std::filesystem::path& path);

}  // namespace millrace
