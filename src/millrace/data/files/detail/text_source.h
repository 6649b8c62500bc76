// Reads a text file in order: checks that it is UTF-8, removes its byte-order mark and computes its hash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace millrace::data::detail {

// Values that change if the source's file changes.
struct SourceStamp {
  std::uint64_t size = 0;
  std::int64_t changed = 0;  // modification time of the file, in nanoseconds
  std::string sha256;        // "" = the content was not read
};

struct TextSource {
  std::filesystem::path path;
  std::string label;  // the source's name in messages, such as: source 2 of 3: "letters.txt"
};

// Returns the size and time of the source's file; the content is not read. Throws DataError if the file can't be opened or is
// empty.
[[nodiscard]] SourceStamp stamp_of(const TextSource& source);
[[nodiscard]] std::string sha256_of(const TextSource& source);

struct TextRead {
  SourceStamp stamp;
  bool had_mark = false;
  std::int64_t marks_inside = 0;  // number of byte-order marks that are not at the beginning
  std::int64_t lone_returns = 0;  // number of "\r" without a "\n" after them
  std::int64_t line_feeds = 0;    // number of "\n"
  std::int64_t both = 0;          // number of "\r\n"
  std::int64_t characters = 0;    // number of code points, without the byte-order mark at the beginning
};
// Calls `piece` with consecutive pieces of the text, which are cut only between code points. Throws DataError if the file is not
// UTF-8 text; the message says what the file is instead, and names the first byte that shows it.
TextRead read_text(const TextSource& source, const std::function<void(std::string_view)>& piece);

}  // namespace millrace::data::detail
