// Turns text into token ids and back. The ids 0 to 3 mean padding, unknown, begin and end; all other ids are characters or bytes.
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
  basic,  // the text is put into lower case; each code point is a token, with ids from 4 in the order of code points
  bytes   // each byte is a token, with id 4 + byte; no information is lost
};

// Constant after construction and thread-safe.
class Tokenizer {
 public:
  static constexpr std::uint32_t kPad = 0;
  static constexpr std::uint32_t kUnknown = 1;
  static constexpr std::uint32_t kBegin = 2;
  static constexpr std::uint32_t kEnd = 3;
  static constexpr std::uint32_t kSpecials = 4;

  // Makes a tokenizer for `characters`, which are put into lower case and sorted; repeated ones count once.
  static std::shared_ptr<const Tokenizer> basic(std::u32string characters);
  static std::shared_ptr<const Tokenizer> bytes();
  // Reads what to_json() wrote. Throws SnapshotError for any other JSON.
  static std::shared_ptr<const Tokenizer> from_json(const Json& json);
  [[nodiscard]] Json to_json() const;

  [[nodiscard]] TokenizerKind kind() const noexcept { return kind_; }
  [[nodiscard]] std::int64_t vocab_size() const noexcept;
  [[nodiscard]] const std::u32string& characters() const noexcept { return characters_; }  // the vocabulary of `basic`, sorted
  [[nodiscard]] std::string fingerprint() const;

  // Returns the ids of a text. A `basic` tokenizer throws a DataError with the offset of the first byte that is not UTF-8.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;
  // Returns the text of tokens. Padding, begin and end are left out; unknown ids become U+FFFD.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> tokens) const;
  // Returns the id of a code point, which must be lower case already.
  [[nodiscard]] std::uint32_t id_of(char32_t character) const noexcept {
    return character < ids_.size() ? ids_[character] : kUnknown;
  }

 private:
  explicit Tokenizer(TokenizerKind kind) : kind_(kind) {}

  TokenizerKind kind_;
  std::u32string characters_;
  std::vector<std::uint32_t> ids_;  // for each code point, up to the largest in the vocabulary: its id
};

}  // namespace millrace::data
