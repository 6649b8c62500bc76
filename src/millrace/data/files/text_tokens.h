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

// Where the vocabulary comes from: all sources, or the first 50,000 characters of the first source.
enum class VocabularyFrom : std::uint8_t { all, first_50000 };

struct TextOptions {
  std::vector<std::filesystem::path> sources;  // UTF-8 files, in order; a byte-order mark at the beginning is removed
  TokenizerKind kind = TokenizerKind::basic;   // if `tokenizer` is null: the kind of tokenizer that is made
  VocabularyFrom vocabulary_from = VocabularyFrom::all;
  std::shared_ptr<const Tokenizer> tokenizer;  // an existing tokenizer, such as that of a resumed run; null = make a tokenizer
  bool end_between_sources = false;            // true: puts an end token between two sources
  std::filesystem::path cache_folder;          // folder of the token file; empty = there is none, and the tokens stay in memory
  bool writes_cache = true;                    // false: a token file that exists is used, but none is written
  Fs* fs = nullptr;                            // writes the token file; null = Fs::real()
};

struct TextTokens {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenArray> tokens;  // the tokens; each source is a document in the array
  std::int64_t characters = 0;               // number of characters or, with TokenizerKind::bytes, of bytes
  std::int64_t unknown = 0;                  // number of characters that are not in the vocabulary
  std::vector<std::string> notices;  // lines about byte-order marks, lone "\r", unknown characters, a failed write of the cache
  std::vector<FileStamp> files;      // stamps of the sources, whose digests cover the whole text
  std::string read_as;               // the text of read_as(TextSeen) for the sources
  bool from_cache = false;
};

// What was found when a text was read.
struct TextSeen {
  std::int64_t files = 0, marks = 0;                        // numbers of files and of byte-order marks; the marks are removed
  std::int64_t line_feeds = 0, both = 0, lone_returns = 0;  // numbers of "\n", of "\n" in "\r\n", and of "\r" without "\n"
  std::int64_t characters = 0;
};
// Reads a whole file and returns what was found. Throws DataError if the file is empty or is not UTF-8 text.
[[nodiscard]] TextSeen look_at_text(const std::filesystem::path& file);
// Returns a line such as "UTF-8, lines end in CR LF, a byte-order mark is removed; 1,234 lines, 45,678 characters".
[[nodiscard]] std::string read_as(const TextSeen& seen);

// Returns the tokens of the sources. A token file is used again if each source still has the same size and time, or else the
// same content (SHA-256). Throws DataError with the name of a source that is missing, empty, not UTF-8 (with the byte), or that
// changed while it was read.
[[nodiscard]] TextTokens tokens_of_text(const TextOptions& options);

}  // namespace millrace::data
