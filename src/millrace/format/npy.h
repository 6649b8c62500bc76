// NumPy's files: .npy holds one array (versions 1 to 3 of the format), .npz is a zip of arrays. Arrays are returned in C order
// and this machine's byte order, whatever the orders in the file. Every size is checked against the file before memory is
// allocated. A DataError with the file's name is thrown if a file is cut off, has more than padding after the array, or holds
// objects or records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/field.h"
#include "millrace/base/fs.h"

namespace millrace {
class InputFile;
}

namespace millrace::format {

// The layout of an array in its file.
struct NpyLayout {
  DType dtype = DType::f32;
  Shape shape;                     // shape of the whole array in the file
  bool fortran = false;            // Fortran order: the first axis varies fastest in the file
  bool swapped = false;            // the bytes of each number are in the opposite order to this machine's
  std::uint64_t bytes = 0;         // number of bytes of the elements
  std::uint64_t header_bytes = 0;  // bytes of the header, before the elements
};

// True if a file that begins with these bytes is a .npy file, of any version; the first six bytes decide.
[[nodiscard]] bool is_npy(std::string_view start);

// A .npy file open for reading. Const and thread-safe.
class NpyFile {
 public:
  explicit NpyFile(const std::filesystem::path& path);
  ~NpyFile();
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;
  NpyFile(const NpyFile&) = delete;
  NpyFile& operator=(const NpyFile&) = delete;

  [[nodiscard]] const NpyLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] const InputFile& file() const noexcept { return *file_; }
  // Reads the whole array; `out` has layout().bytes bytes.
  void read(std::span<std::byte> out) const;
  // Reads rows [first, first + count) of the first axis, and only these from the disk. In Fortran order each element of a row
  // takes one short pread, because the rows are scattered. `out` has the rows' bytes. The rows must lie inside the array, which
  // must have an axis.
  void read_rows(std::int64_t first, std::int64_t count, std::span<std::byte> out) const;

 private:
  std::unique_ptr<InputFile> file_;
  NpyLayout layout_;
};

// An array of a .npz file.
struct NpzEntry {
  std::string name;  // without the ending ".npy"
  NpyLayout layout;
  std::uint64_t offset = 0;      // offset of the member's data in the file
  std::uint64_t compressed = 0;  // number of compressed bytes in the file
  std::uint32_t crc32 = 0;       // checksum of the member after decompression
  bool deflated = false;
};

// A .npz file open for reading: stored and deflated members, zip64. Const and thread-safe.
class NpzFile {
 public:
  explicit NpzFile(const std::filesystem::path& path);
  ~NpzFile();
  NpzFile(NpzFile&& other) noexcept;
  NpzFile& operator=(NpzFile&&) = delete;
  NpzFile(const NpzFile&) = delete;
  NpzFile& operator=(const NpzFile&) = delete;

  [[nodiscard]] const std::vector<NpzEntry>& entries() const noexcept { return entries_; }  // sorted by name
  // The members that are not arrays of plain numbers: the name in the archive, and the reason. check_zip() checks their CRCs.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& unread() const noexcept { return unread_; }
  [[nodiscard]] const NpzEntry* find(std::string_view name) const noexcept;
  [[nodiscard]] const InputFile& file() const noexcept { return *file_; }
  // Reads the whole array and checks its CRC; `out` has entry.layout.bytes bytes.
  void read(const NpzEntry& entry, std::span<std::byte> out) const;

 private:
  std::unique_ptr<InputFile> file_;
  std::vector<NpzEntry> entries_;
  std::vector<std::pair<std::string, std::string>> unread_;
};

// Checks the CRC-32 of every member of a zip archive. Throws a DataError that names the member whose CRC is wrong, or the file
// if it is not an archive. Holds one compressed member in memory at a time.
void check_zip(const std::filesystem::path& path);

// Returns the names of a zip archive's members. Throws DataError if the file is not an archive.
[[nodiscard]] std::vector<std::string> zip_names(const std::filesystem::path& path);

// Writes an array as version 1.0, C order; `bytes` has the size of the shape. The caller syncs and closes. Throws DataError for
// bf16, which NumPy lacks, and for a shape whose size is impossible.
void write_npy(WritableFile& file, DType dtype, const Shape& shape, std::span<const std::byte> bytes);

// An array of a .npz file to write; `field.shape` is the whole shape.
struct NpzArray {
  Field field;
  std::span<const std::byte> bytes;
};
// Writes the arrays as a .npz file. Equal arrays give equal bytes, because members have no dates. Throws DataError as
// write_npy() does, and for two arrays of the same name.
void write_npz(WritableFile& file, std::span<const NpzArray> arrays, bool deflated = false);

}  // namespace millrace::format
