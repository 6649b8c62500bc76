#include "millrace/data/files/detail/text_signs.h"

#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kShown = 40;          // a message shows at most this many bytes of a line
constexpr std::int64_t kLeastTags = 20;     // text with fewer tags is not taken as markup, because a book may contain a few
constexpr std::int64_t kBytesPerTag = 100;  // text is taken as markup only if it has at least one tag per this many bytes
constexpr double kMostOfLines = 0.9;
constexpr std::int64_t kLeastRepeats = 20, kLeastReturns = 10;
constexpr double kRepeated = 0.25;  // a repeated line is reported if it takes at least this share of all bytes
constexpr std::int64_t kLeastTwice = 5;
constexpr std::int64_t kBytesPerTwice = 2000;  // text counts as encoded twice only above one pair (twice_) per this many bytes

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string share_text(double part) { return percent(part, part < 0.1 ? 1 : 0); }

}  // namespace

void TextSigns::add(std::string_view piece) {
  if (bytes_ == 0) {
    const std::string start = to_lower(piece.substr(0, 512));
    begins_as_page_ = start.starts_with("<!doctype") || start.starts_with("<?xml") || start.find("<html") != std::string::npos;
  }
  bytes_ += static_cast<std::int64_t>(piece.size());
  for (std::size_t at = 0; at < piece.size();) {
    const char c = piece[at];
    if (static_cast<unsigned char>(c) >= 0x80) {
      const Utf8Step step = decode_utf8(piece, at);
      add_to_line(piece.substr(at, step.size));
      count_character(step.code_point);
      at += step.size;
      continue;
    }
    if (c == '\n') {
      returns_ += before_ == '\r' ? 1 : 0;
      end_line();
    } else if (!is_blank(c) || line_.size > 0) {
      add_to_line(piece.substr(at, 1));
    }
    const bool names = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/' || c == '!';
    tags_ += before_ == '<' && names ? 1 : 0;
    before_ = static_cast<unsigned char>(c);
    ++at;
  }
}

void TextSigns::add_to_line(std::string_view character) {
  constexpr std::uint64_t kPrime = 0x100000001B3U;  // the prime of the FNV-1a hash
  for (const char c : character) line_.hash = (line_.hash ^ static_cast<unsigned char>(c)) * kPrime;
  line_.size += static_cast<std::int64_t>(character.size());
  const char c = character.size() > 1 ? '\1' : character.front();
  if (line_.first == 0) line_.first = c;
  if (!is_blank(c)) line_.last = c;
  if (line_.begin.size() < kShown) line_.begin += character;
}

void TextSigns::count_character(char32_t character) {
  lost_ += character == U'\uFFFD' ? 1 : 0;
  // Counts pairs that show text encoded twice. If UTF-8 text was encoded twice, each byte of a two-byte or three-byte character
  // has become a character: the first byte a letter of Latin-1, the second byte another character.
  const bool leads = before_ == U'\u00C2' || before_ == U'\u00C3' || before_ == U'\u00E2';
  twice_ += leads && ((character >= U'\u0080' && character <= U'\u00BF') || character == U'\u20AC') ? 1 : 0;
  before_ = character;
}

void TextSigns::end_line() {
  ++lines_;
  if (line_.size > 0) count_line();
  line_ = {};
}

// Keeps the most frequent lines in a table of 16 entries (the algorithm of Misra and Gries). A line that makes up more than a
// seventeenth of the text is always in the table.
void TextSigns::count_line() {
  objects_ += line_.first == '{' && line_.last == '}' ? 1 : 0;
  const std::int64_t bytes = line_.size;
  const auto same = std::ranges::find_if(frequent_, [&](const Frequent& f) { return f.bytes > 0 && f.hash == line_.hash; });
  if (same != frequent_.end()) {
    same->bytes += bytes;
    ++same->count;
    return;
  }
  const auto least = std::ranges::min_element(frequent_, {}, &Frequent::bytes);
  const std::int64_t taken = std::min(bytes, least->bytes);
  for (Frequent& other : frequent_) other.bytes -= taken;
  if (bytes > taken) *least = {.hash = line_.hash, .bytes = bytes - taken, .count = 1, .begin = line_.begin};
}

const TextSigns::Frequent& TextSigns::most_frequent() const { return *std::ranges::max_element(frequent_, {}, &Frequent::bytes); }

bool TextSigns::ends_lines_by_two() const noexcept { return returns_ >= kLeastReturns && 2 * returns_ > lines_; }
bool TextSigns::is_markup() const noexcept { return begins_as_page_ || (tags_ >= kLeastTags && tags_ * kBytesPerTag > bytes_); }
bool TextSigns::is_json() const noexcept {
  return lines_ > 0 && static_cast<double>(objects_) >= kMostOfLines * static_cast<double>(lines_);
}

std::vector<std::string> TextSigns::lines() const {
  std::vector<std::string> all;
  const Frequent& line = most_frequent();
  const double repeated = static_cast<double>(line.bytes) / static_cast<double>(std::max<std::int64_t>(bytes_, 1));
  if (line.count >= kLeastRepeats && repeated > kRepeated)
    all.push_back("repeats the line " + quoted(line.begin) + ", which makes up at least " + share_text(repeated) +
                  " of the text, so the model learns the line that often");
  if (lost_ > 0)
    all.push_back("holds " + with_commas(lost_) +
                  " characters U+FFFD, which mark characters that a conversion lost: " + "convert the original again");
  if (twice_ >= kLeastTwice && twice_ * kBytesPerTwice > bytes_)
    all.push_back("was encoded twice: " + with_commas(twice_) + " pairs like \u00C3\u00A9 stand where one character was. " +
                  "iconv -f UTF-8 -t LATIN1 undoes one of the two encodings");
  return all;
}

std::vector<std::string> notices_of_signs(const std::vector<TextSigns>& all, const std::vector<std::string>& labels) {
  std::vector<std::string> notices;
  const auto add = [&](bool (TextSigns::*shows)() const noexcept, bool alone, const std::string& what) {
    const auto count = static_cast<std::size_t>(std::ranges::count_if(all, shows));
    if (count == all.size() && !(alone && count == 1)) return;
    for (std::size_t i = 0; i < all.size(); ++i)
      if ((all[i].*shows)()) notices.push_back(labels[i] + " " + what);
  };
  add(&TextSigns::is_markup, true, "is HTML or XML: its tags are learned as text");
  add(&TextSigns::is_json, true, "is JSON, an object on each line: names and quotes are learned as text");
  add(&TextSigns::ends_lines_by_two, false,
      "ends its lines with carriage return and line feed, unlike other sources, so the carriage returns are learned as "
      "characters");
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const std::string& line : all[i].lines()) notices.push_back(labels[i] + " " + line);
  return notices;
}

}  // namespace millrace::data::detail
