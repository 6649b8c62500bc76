// Zip archives (PKWARE's APPNOTE) as far as NumPy and PyTorch use them: members stored or deflated, zip64; no encryption, a
// single disk.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"

namespace millrace::format::detail {

struct ZipMember {
  std::string name;
  std::uint64_t offset = 0;      // offset in the file at which the member's data begins
  std::uint64_t compressed = 0;  // size of the compressed data, all of which lie inside the file
  std::uint64_t bytes = 0;       // size after decompression; at most what the compressed bytes can expand to
  std::uint32_t crc32 = 0;
  bool deflated = false;
};

// The members, sorted by name, as the directory at the file's end lists them. `problem` says what is wrong; "" = the archive is
// valid. Throws DataError if the file can't be read.
struct ParsedZip {
  std::vector<ZipMember> members;
  std::string problem;
};
[[nodiscard]] ParsedZip read_zip_directory(const InputFile& file);

// Writes an archive: members with data, then the directory. All sizes are stored as zip64, so members may be larger than 4 GiB.
class ZipWriter {
 public:
  explicit ZipWriter(WritableFile& file) : file_(file) {}
  // Adds a member whose data begins at a multiple of `alignment` bytes of the file.
  void add(const std::string& name, std::span<const std::byte> bytes, bool deflated, std::size_t alignment = 1);
  void finish();

 private:
  void write(std::span<const std::byte> bytes);
  WritableFile& file_;
  std::uint64_t at_ = 0;
  std::string directory_;
  std::uint64_t members_ = 0;
};

}  // namespace millrace::format::detail
