#include "millrace/data/files/detail/text_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/base/text_encoding.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20U;
constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr std::size_t kLongestCodePoint = 4;

InputFile open(const TextSource& source) {
  try {
    return InputFile(source.path);
  } catch (const DataError& error) {
    Message message = error.message();
    message.where = source.label;
    throw DataError(std::move(message));
  }
}

[[noreturn]] void refuse(const TextSource& source, const NoText& found, std::string_view text, std::uint64_t offset) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(text[found.byte]);
  throw DataError(
      {.what = source.label + " " + found.is,
       .where = "byte " + std::to_string(offset + found.byte) + " (0x" + kDigits[value / 16] + kDigits[value % 16] + ")",
       .next = found.next});
}

// Returns the length of `text` up to its last complete code point. Throws at the first invalid byte. A code point that is cut
// off at the end is left for the next piece; in the last piece it is invalid.
std::size_t whole_code_points(const TextSource& source, std::string_view text, std::uint64_t offset, bool last) {
  const std::optional<NoText> other = offset == 0 ? other_than_text(text, source.path) : std::nullopt;
  if (other) refuse(source, *other, text, offset);
  const std::optional<std::size_t> bad = first_byte_of_no_text(text);
  if (!bad) return text.size();
  if (last || text.size() - *bad >= kLongestCodePoint || text[*bad] == '\0')
    refuse(source, broken_text(text, *bad, source.path), text, offset);
  return *bad;
}

// Counts characters, line ends and signs of damage. `before`: the byte before the piece.
void count_signs(std::string_view text, char& before, bool last, TextRead& read) {
  for (std::size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + kMark.size()))
    ++read.marks_inside;
  if (before == '\r' && text.front() != '\n') ++read.lone_returns;
  for (std::size_t at = text.find('\r'); at != std::string_view::npos; at = text.find('\r', at + 1)) {
    if (at + 1 < text.size() ? text[at + 1] != '\n' : last) ++read.lone_returns;
  }
  for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    ++read.line_feeds;
    if ((at == 0 ? before : text[at - 1]) == '\r') ++read.both;
  }
  read.characters +=
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
  before = text.back();
}

SourceStamp stamp(const InputFile& file, const TextSource& source) {
  struct stat status {};
  if (::stat(file.path().c_str(), &status) != 0) status = {};
  if (file.size() == 0)
    throw DataError({.what = source.label + " is empty", .where = "", .next = "give it text or leave it out"});
  return {.size = file.size(),
          .changed = static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec,
          .sha256 = {}};
}

}  // namespace

SourceStamp stamp_of(const TextSource& source) { return stamp(open(source), source); }

std::string sha256_of(const TextSource& source) {
  const InputFile file = open(source);
  Sha256 hash;
  std::string buffer;
  for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(kChunk, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(buffer)));
    hash.update(buffer);
    doing_moved();
  }
  return hash.hex();
}

TextRead read_text(const TextSource& source, const std::function<void(std::string_view)>& piece) {
  const InputFile file = open(source);
  TextRead result{.stamp = stamp(file, source)};
  Sha256 hash;
  char before = '\n';
  std::string buffer;  // the cut-off code point after the previous piece, followed by the next chunk
  for (std::uint64_t at = 0; at < file.size();) {
    const std::size_t kept = buffer.size();
    const std::size_t count = std::min<std::uint64_t>(kChunk, file.size() - at);
    buffer.resize(kept + count);
    file.read(at, std::as_writable_bytes(std::span(buffer).subspan(kept)));
    hash.update(std::string_view(buffer).substr(kept));
    doing_moved();
    std::string_view text = buffer;
    const std::uint64_t offset = at - kept;
    at += count;
    const std::size_t whole = whole_code_points(source, text, offset, at == file.size());
    text = text.substr(0, whole);
    if (offset == 0 && text.starts_with(kMark)) {
      result.had_mark = true;
      text.remove_prefix(kMark.size());
    }
    if (text.empty()) {
      buffer.erase(0, whole);
      continue;
    }
    count_signs(text, before, at == file.size(), result);
    piece(text);
    buffer.erase(0, whole);
  }
  result.stamp.sha256 = hash.hex();
  return result;
}

}  // namespace millrace::data::detail
