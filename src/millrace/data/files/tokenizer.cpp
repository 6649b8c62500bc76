#include "millrace/data/files/tokenizer.h"

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/utf8.h"

namespace millrace::data {
namespace {

constexpr char32_t kReplacement = U'\uFFFD';

[[noreturn]] void damaged(const std::string& what) {
  throw SnapshotError({.what = "a saved tokenizer can't be read: " + what, .where = "tokenizer", .next = "use another snapshot"});
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::basic(std::u32string characters) {
  for (char32_t& character : characters) character = to_lower(character);
  std::sort(characters.begin(), characters.end());
  characters.erase(std::unique(characters.begin(), characters.end()), characters.end());
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(TokenizerKind::basic));
  tokenizer->ids_.assign(characters.empty() ? 0 : characters.back() + 1, kUnknown);
  for (std::size_t i = 0; i < characters.size(); ++i) tokenizer->ids_[characters[i]] = kSpecials + static_cast<std::uint32_t>(i);
  tokenizer->characters_ = std::move(characters);
  return tokenizer;
}

std::shared_ptr<const Tokenizer> Tokenizer::bytes() {
  return std::shared_ptr<const Tokenizer>(new Tokenizer(TokenizerKind::bytes));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(const Json& json) {
  if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) damaged("it has no \"kind\"");
  const auto kind = json["kind"].get<std::string>();
  if (kind == "bytes") return bytes();
  if (kind != "basic") damaged("its kind is " + quoted(kind));
  if (!json.contains("characters") || !json["characters"].is_string()) damaged("it has no \"characters\"");
  const auto text = json["characters"].get<std::string>();
  std::u32string characters;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) damaged("its characters are not UTF-8 at byte " + std::to_string(at));
    if (step.code_point != to_lower(step.code_point) || (!characters.empty() && step.code_point <= characters.back())) {
      damaged("its characters are not lower-case, sorted and distinct at byte " + std::to_string(at));
    }
    characters += step.code_point;
    at += step.size;
  }
  return basic(std::move(characters));
}

Json Tokenizer::to_json() const {
  if (kind_ == TokenizerKind::bytes) return {{"kind", "bytes"}};
  std::string text;
  for (const char32_t character : characters_) append_utf8(text, character);
  return {{"kind", "basic"}, {"characters", text}};
}

std::int64_t Tokenizer::vocab_size() const noexcept {
  return kSpecials + (kind_ == TokenizerKind::bytes ? 256 : static_cast<std::int64_t>(characters_.size()));
}

std::string Tokenizer::fingerprint() const {
  if (kind_ == TokenizerKind::bytes) return "bytes";
  Sha256 hash;
  hash.update(to_json().dump());
  return "basic " + std::to_string(vocab_size()) + " " + hash.hex().substr(0, 16);
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  if (kind_ == TokenizerKind::bytes) {
    for (const char c : text) tokens.push_back(kSpecials + static_cast<unsigned char>(c));
    return tokens;
  }
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) {
      throw DataError({.what = "the text is not UTF-8", .where = "byte " + std::to_string(at), .next = "give it as UTF-8"});
    }
    tokens.push_back(id_of(to_lower(step.code_point)));
    at += step.size;
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  for (const std::int64_t token : tokens) {
    if (token == kPad || token == kBegin || token == kEnd) continue;
    if (token < kSpecials || token >= vocab_size()) {
      append_utf8(text, kReplacement);
    } else if (kind_ == TokenizerKind::bytes) {
      text += static_cast<char>(token - kSpecials);
    } else {
      append_utf8(text, characters_[static_cast<std::size_t>(token) - kSpecials]);
    }
  }
  return text;
}

}  // namespace millrace::data
