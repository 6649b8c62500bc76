// A long sequence of token ids, in memory or in a token file that is read by pread.
//
// Layout of a token file, little-endian: a header (magic "MRTOKENS", u32 version, u32 bytes of a token); the tokens; zeros up
// to a multiple of 8; for each document a u64, the number of its first token; the writer's JSON; a footer (counts, CRC32C of
// each part and of the footer itself). The counts stand at the end, so that a corpus can be written in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/json.h"

namespace millrace::data {

// Constant after construction and thread-safe.
class TokenArray {
 public:
  // Makes an array from tokens in memory. `fingerprint` identifies the content. Throws a DataError that names the first id that
  // is not below vocab_size.
  static std::shared_ptr<const TokenArray> in_memory(std::vector<std::uint16_t> tokens, std::uint64_t vocab_size,
                                                     std::vector<std::int64_t> documents, std::string fingerprint);
  static std::shared_ptr<const TokenArray> in_memory(std::vector<std::uint32_t> tokens, std::uint64_t vocab_size,
                                                     std::vector<std::int64_t> documents, std::string fingerprint);
  // Opens a token file. First checks every byte against the file's checksums and every id against vocab_size. Throws a DataError
  // that says what is wrong and where. A file of up to 64 MiB is kept in memory; a larger file is read by pread when tokens are
  // needed.
  static std::shared_ptr<const TokenArray> open(const std::filesystem::path& path);
  // Opens another program's file of bare ids, little-endian. `token_bytes` is the size of an id, 2 or 4; the file itself does
  // not say it.
  static std::shared_ptr<const TokenArray> open_bare(const std::filesystem::path& path, std::size_t token_bytes,
                                                     std::uint64_t vocab_size);

  virtual ~TokenArray() = default;
  TokenArray(const TokenArray&) = delete;
  TokenArray& operator=(const TokenArray&) = delete;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t token_bytes() const noexcept { return token_bytes_; }  // bytes of a token, 2 or 4
  [[nodiscard]] std::uint64_t vocab_size() const noexcept { return vocab_size_; }
  // Returns the number of each document's first token.
  [[nodiscard]] std::span<const std::int64_t> documents() const noexcept { return documents_; }
  [[nodiscard]] const std::string& fingerprint() const noexcept { return fingerprint_; }
  [[nodiscard]] const Json& notes() const noexcept { return notes_; }       // returns the JSON that the writer added, or null
  [[nodiscard]] const std::string& name() const noexcept { return name_; }  // the path of the file, or "tokens in memory"
  [[nodiscard]] virtual bool in_memory() const noexcept = 0;
  // Reads tokens [first, first + count), which must exist. Throws DataError if the file has changed since it was opened.
  virtual void read(std::int64_t first, std::int64_t count, std::byte* out) const = 0;

 protected:
  TokenArray() = default;
  std::int64_t size_ = 0;
  std::size_t token_bytes_ = 2;
  std::uint64_t vocab_size_ = 0;
  std::vector<std::int64_t> documents_;
  std::string fingerprint_;
  Json notes_;
  std::string name_;
};

// Writes a token file under a temporary name; finish() renames it. If finish() is not called, no file is left.
class TokenFileWriter {
 public:
  TokenFileWriter(Fs& fs, const std::filesystem::path& path,
                  std::uint64_t vocab_size);  // a token takes 2 bytes if this is at most 65,536, else 4 bytes

  void begin_document() { documents_.push_back(count_); }
  void append(std::span<const std::uint32_t> tokens);
  void finish(const Json& notes);

 private:
  void write(std::span<const std::byte> bytes) { file_.file().write(bytes); }

  AtomicFile file_;
  std::uint64_t vocab_size_;
  std::uint32_t token_bytes_;
  std::uint64_t count_ = 0;
  std::uint32_t crc_ = 0;
  std::vector<std::uint64_t> documents_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace millrace::data
