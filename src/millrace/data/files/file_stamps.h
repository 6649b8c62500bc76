// Stamps tell on resume whether the files of a data set still hold the same: their names, sizes, and a digest of their content.
//
// Paths and times do not count: data that was copied, moved, touched or mounted elsewhere is the same data.
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
  // "KIND:DIGITS"; digests of different kinds can't be compared. "" = the file could not be read; then neither size nor digest
  // means anything.
  std::string digest;
  std::int64_t modified_ns = 0;  // time of the last write; not compared by ==. 0 = unknown
  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.name == b.name && a.size == b.size && a.digest == b.digest;
  }
};

// How much of a file its digest covers. It depends only on the number of files, so that very many are still read quickly:
//   up to 256 files     files up to 1 MiB whole; of larger ones 64 KiB at the head, 64 KiB at the tail, 16 samples of 8 KiB
//   up to 4,096 files   files up to 64 KiB whole; of larger ones 16 KiB, 16 KiB and 8 samples of 4 KiB
//   more                files up to 12 KiB whole; of larger ones 4 KiB, 4 KiB and one sample of 4 KiB in the middle
// Samples are equally spaced. In a larger file, a changed byte outside of them is NOT seen if the size stays. Never throws
// because of a file (see FileStamp::digest). Uses several threads if there are many files.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files);
// Computes the same stamps under the caller's names, one per file.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files, std::vector<std::string> names);

// Identifies the bytes of a file wherever it lies, as far as its stamp covers them; "" if it could not be read.
[[nodiscard]] std::string content_text(const FileStamp& stamp);

// Names relative to the deepest folder that contains all files. Links are not followed.
[[nodiscard]] std::vector<std::string> relative_names(std::span<const std::filesystem::path> files);

}  // namespace millrace::data
