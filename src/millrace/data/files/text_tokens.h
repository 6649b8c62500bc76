// Turns text files into tokens. The result is kept as a token file in a cache folder and is used again while the text is
// unchanged.
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

// The vocabulary comes from all sources, or from the first 50,000 characters of the first source.
enum class VocabularyFrom : std::uint8_t { all, first_50000 };

struct TextOptions {
  std::vector<std::filesystem::path> sources;  // UTF-8 files, in order; a byte-order mark at the beginning is removed
  TokenizerKind kind = TokenizerKind::basic;   // the kind of tokenizer that is made if `tokenizer` is null
  VocabularyFrom vocabulary_from = VocabularyFrom::all;
  std::shared_ptr<const Tokenizer> tokenizer;  // used as it is, such as that of a resumed run; null = make one
  bool end_between_sources = false;            // true: puts an end token between two sources
  std::filesystem::path cache_folder;          // empty = no token file; the tokens stay in memory
  bool writes_cache = true;                    // false: an existing token file is used, but none is written
  Fs* fs = nullptr;                            // writes the token file; null = Fs::real()
};

struct TextTokens {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenArray> tokens;  // each source is a document
  std::int64_t characters = 0;               // number of characters; of bytes with TokenizerKind::bytes
  std::int64_t unknown = 0;                  // characters that are not in the vocabulary
  std::vector<std::string> notices;  // lines about byte-order marks, lone \\r, unknown characters, a failed write of the cache
  std::vector<FileStamp> files;      // stamps of the sources, whose digests cover the whole text
  std::string read_as;               // read_as(TextSeen) of the sources
  bool from_cache = false;
};

// What was found when a text was read.
struct TextSeen {
  std::int64_t files = 0, marks = 0;                        // number of files; number of byte-order marks, which are removed
  std::int64_t line_feeds = 0, both = 0, lone_returns = 0;  // line ends: all "\n"; those in "\r\n"; "\r" alone
  std::int64_t characters = 0;
};
// Reads a whole file. Throws DataError if it is empty or is not UTF-8 text.
[[nodiscard]] TextSeen look_at_text(const std::filesystem::path& file);
// A line such as "UTF-8, lines end in CR LF, a byte-order mark is removed; 1,234 lines, 45,678 characters".
[[nodiscard]] std::string read_as(const TextSeen& seen);

// Returns the tokens of the sources. A token file is used again if each source still has the same size and time, or else the
// same content (SHA-256). Throws DataError with the name of a source that is missing, empty, not UTF-8 (with the byte), or that
// changed while it was read.
[[nodiscard]] TextTokens tokens_of_text(const TextOptions& options);

}  // namespace millrace::data
