// Turns text files into tokens, once: the result is kept as a token file in a cache folder and reused while the text is the same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/data/files/file_stamps.h"
#include "millrace/data/files/token_array.h"
#include "millrace/data/files/tokenizer.h"

namespace millrace::data {

enum class VocabularyFrom : std::uint8_t { all, first_50000 };  // all sources, or the first 50,000 characters of the first

struct TextOptions {
  std::vector<std::filesystem::path> sources;  // UTF-8, in order; a leading byte-order mark is removed
  TokenizerKind kind = TokenizerKind::basic;   // kind of the tokenizer to make ...
  VocabularyFrom vocabulary_from = VocabularyFrom::all;
  std::shared_ptr<const Tokenizer> tokenizer;  // ... unless one is given: a resumed run's
  bool end_between_sources = false;            // an end token between sources
  std::filesystem::path cache_folder;          // empty = no file; the tokens stay in memory
  bool writes_cache = true;                    // false: an existing file is used, a new one is not written
  Fs* fs = nullptr;                            // for writing the cache; null = Fs::real()
};

struct TextTokens {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenArray> tokens;  // one document per source
  std::int64_t characters = 0;               // bytes for the tokenizer `bytes`
  std::int64_t unknown = 0;                  // characters that are not in the vocabulary
  std::vector<std::string>
      notices;                   // one line each: byte-order marks, lone \\r, unknown characters, a cache that can't be written
  std::vector<FileStamp> files;  // the sources; digests of the whole text
  std::string read_as;           // read_as(TextSeen) of the sources
  bool from_cache = false;
};

// How the texts were read.
struct TextSeen {
  std::int64_t files = 0, marks = 0;                        // byte-order marks at the beginning, which are removed
  std::int64_t line_feeds = 0, both = 0, lone_returns = 0;  // line ends: "\n" in total, "\r\n" among them, "\r" alone
  std::int64_t characters = 0;
};
// Reads a whole file. DataError if it is not UTF-8 text, or empty.
[[nodiscard]] TextSeen look_at_text(const std::filesystem::path& file);
// "UTF-8, lines end in CR LF, a byte-order mark is removed; 1,234 lines, 45,678 characters".
[[nodiscard]] std::string read_as(const TextSeen& seen);

// DataError names the source that is missing, empty or not UTF-8 (with the byte), or that changed while it was read. A token file
// is reused if each source has the size and time it was made from, or else the same content (SHA-256).
[[nodiscard]] TextTokens tokens_of_text(const TextOptions& options);

}  // namespace millrace::data
