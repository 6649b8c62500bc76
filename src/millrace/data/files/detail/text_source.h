// One text file, read in order: checked UTF-8 without its byte-order mark, hashed on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace millrace::data::detail {

// Shows whether a file is still the one that was read.
struct SourceStamp {
  std::uint64_t size = 0;
  std::int64_t changed = 0;  // nanoseconds, the file's modification time
  std::string sha256;        // "" = not read
};

struct TextSource {
  std::filesystem::path path;
  std::string label;  // for messages: source 2 of 3: "letters.txt"
};

// Reads size and time only. DataError if the file can't be opened or is empty.
[[nodiscard]] SourceStamp stamp_of(const TextSource& source);
[[nodiscard]] std::string sha256_of(const TextSource& source);

struct TextRead {
  SourceStamp stamp;
  bool had_mark = false;
  std::int64_t marks_inside = 0;  // byte-order marks after the beginning of the text
  std::int64_t lone_returns = 0;  // "\r" not followed by "\n"
  std::int64_t line_feeds = 0;    // "\n"
  std::int64_t both = 0;          // line feeds after a "\r"
  std::int64_t characters = 0;    // code points, without the mark
};
// Passes the text to `piece` in pieces that end between code points. DataError if the file is not UTF-8 text: says what it is
// instead, at the first byte that shows it.
TextRead read_text(const TextSource& source, const std::function<void(std::string_view)>& piece);

}  // namespace millrace::data::detail
