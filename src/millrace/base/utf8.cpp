#include "millrace/base/utf8.h"

#include <utf8proc.h>

namespace millrace {
namespace {

bool is_continuation(unsigned char byte) noexcept { return (byte & 0xC0U) == 0x80U; }

}  // namespace

Utf8Step decode_utf8(std::string_view text, std::size_t at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {.code_point = first, .size = 1, .valid = true};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() - at < size) return {};
  char32_t code_point = first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if (!is_continuation(byte)) return {};
    code_point = code_point << 6U | (byte & 0x3FU);
  }
  const bool is_overlong = (size == 3 && code_point < 0x800) || (size == 4 && code_point < 0x10000);
  const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
  if (is_overlong || is_surrogate || code_point > 0x10FFFF) return {};
  return {.code_point = code_point, .size = size, .valid = true};
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto tail = [&](unsigned shift) { text += static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0U | (code_point >> 6U));
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0U | (code_point >> 12U));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0U | (code_point >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) return at;
    at += step.size;
  }
  return std::nullopt;
}

char32_t to_lower(char32_t code_point) noexcept {
  if (code_point < 0x80) return code_point >= U'A' && code_point <= U'Z' ? code_point + 32 : code_point;
  return static_cast<char32_t>(::utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

std::string to_lower(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (step.valid) {
      append_utf8(result, to_lower(step.code_point));
    } else {
      result += text[at];
    }
    at += step.size;
  }
  return result;
}

}  // namespace millrace
