// UTF-8 as defined by RFC 3629 (no overlong forms, no surrogates, nothing above U+10FFFF), and Unicode's simple lower case (by
// utf8proc).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct Utf8Step {
  char32_t code_point = U'\uFFFD';
  std::size_t size = 1;  // number of bytes to advance; 1 if the byte is invalid
  bool valid = false;
};

// The code point that starts at byte `at`; at < text.size().
[[nodiscard]] Utf8Step decode_utf8(std::string_view text, std::size_t at) noexcept;
void append_utf8(std::string& text, char32_t code_point);
// Returns the offset of the first byte that is not part of valid UTF-8; nullopt if all bytes are valid.
[[nodiscard]] std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept;
// Returns Unicode's simple lower-case mapping (the same in versions 14 and 15), which is always one code point. A code point
// without a lower case is returned unchanged.
[[nodiscard]] char32_t to_lower(char32_t code_point) noexcept;
// Returns valid UTF-8 in lower case; invalid bytes are kept as they are.
[[nodiscard]] std::string to_lower(std::string_view text);

}  // namespace millrace
