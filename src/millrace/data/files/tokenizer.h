// Turns text into token ids and back. Ids 0 to 3 are pad, unknown, begin and end; the others are characters or bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::data {

enum class TokenizerKind : std::uint8_t {
  basic,  // text is lower-cased, one token per code point, ids from 4 in order of code point
  bytes   // id 4 + byte: nothing is lost
};

// Const after construction, thread-safe.
class Tokenizer {
 public:
  static constexpr std::uint32_t kPad = 0;
  static constexpr std::uint32_t kUnknown = 1;
  static constexpr std::uint32_t kBegin = 2;
  static constexpr std::uint32_t kEnd = 3;
  static constexpr std::uint32_t kSpecials = 4;

  // `characters` may be unordered, repeated and upper case: they are lower-cased, sorted and made distinct.
  static std::shared_ptr<const Tokenizer> basic(std::u32string characters);
  static std::shared_ptr<const Tokenizer> bytes();
  // SnapshotError if `json` was not written by to_json().
  static std::shared_ptr<const Tokenizer> from_json(const Json& json);
  [[nodiscard]] Json to_json() const;

  [[nodiscard]] TokenizerKind kind() const noexcept { return kind_; }
  [[nodiscard]] std::int64_t vocab_size() const noexcept;
  [[nodiscard]] const std::u32string& characters() const noexcept { return characters_; }  // of `basic`, sorted
  [[nodiscard]] std::string fingerprint() const;

  // The ids of a text; DataError with the byte's offset if it is not UTF-8 (`basic`).
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;
  // Pad, begin and end are dropped; unknown and ids outside the vocabulary become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> tokens) const;
  // Id of a code point that is already lower case.
  [[nodiscard]] std::uint32_t id_of(char32_t character) const noexcept {
    return character < ids_.size() ? ids_[character] : kUnknown;
  }

 private:
  explicit Tokenizer(TokenizerKind kind) : kind_(kind) {}

  TokenizerKind kind_;
  std::u32string characters_;
  std::vector<std::uint32_t> ids_;  // by code point, up to the largest in the vocabulary
};

}  // namespace millrace::data
