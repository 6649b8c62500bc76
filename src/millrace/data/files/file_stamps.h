// The stamp of a file is its name, its size and a digest of its content. When a run resumes, stamps show whether its data is
// still the same.
//
// Folders and times do not count: data that was copied, moved, touched or mounted elsewhere is the same data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data {

struct FileStamp {
  std::string name;  // the path relative to the deepest folder that contains all files of the data set
  std::uint64_t size = 0;
  // "KIND:DIGITS". Digests of different kinds can't be compared. "" = the file could not be read, and `size` has no meaning
  // either.
  std::string digest;
  std::int64_t modified_ns = 0;  // time of the last write, 0 = unknown; ignored by ==
  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.name == b.name && a.size == b.size && a.digest == b.digest;
  }
};

// Computes the stamps of files. What a digest covers depends only on the number of files and the size of the file, so that even
// many files are read quickly:
//   up to 256 files     a file up to 1 MiB: all; a larger file: the first 64 KiB, the last 64 KiB, 16 samples of 8 KiB
//   up to 4,096 files   a file up to 64 KiB: all; a larger file: the first 16 KiB, the last 16 KiB, 8 samples of 4 KiB
//   more files          a file up to 12 KiB: all; a larger file: the first 4 KiB, the last 4 KiB, 4 KiB in the middle
// The samples are equally spaced. If a file is not covered whole and keeps its size, a changed byte outside the samples is NOT
// noticed. Does not throw for a file that can't be read (see FileStamp::digest). Uses several threads if there are many files.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files);
// Like stamps_of() above, but the caller gives the names, one for each file.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files, std::vector<std::string> names);

// Returns a text that identifies the content of a file, as far as the stamp's digest covers the content. The text does not
// depend on the file's folder. Returns "" if the file could not be read.
[[nodiscard]] std::string content_text(const FileStamp& stamp);

// Returns the files' names relative to the deepest folder that contains all of the files. Links are not followed.
[[nodiscard]] std::vector<std::string> relative_names(std::span<const std::filesystem::path> files);

}  // namespace millrace::data
