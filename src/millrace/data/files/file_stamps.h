// What tells on resume whether the files of a data set still hold the same: their names, sizes, and a digest of what is in them.
//
// Paths and times are no part of it: data that was copied, moved, touched or mounted elsewhere is the same data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data {

struct FileStamp {
  std::string name;  // relative: what is left of the path below the folder that all files of the data set are in
  std::uint64_t size = 0;
  // "KIND:DIGITS"; digests of two kinds can't be compared. "" = the file could not be read, so neither size nor digest says
  // anything.
  std::string digest;
  std::int64_t modified_ns = 0;  // when it was last written; no part of ==. 0 = not known
  friend bool operator==(const FileStamp& a, const FileStamp& b) {
    return a.name == b.name && a.size == b.size && a.digest == b.digest;
  }
};

// How much of a file its digest has seen. It depends on the number of files alone, so that very many are still read in a moment:
//   up to 256 files     files up to 1 MiB whole; of larger ones 64 KiB at the head, 64 KiB at the tail, 16 samples of 8 KiB
//   up to 4,096 files   files up to 64 KiB whole; of larger ones 16 KiB, 16 KiB and 8 samples of 4 KiB
//   more                files up to 12 KiB whole; of larger ones 4 KiB, 4 KiB and one sample of 4 KiB in the middle
// Samples stand at equal distances. A byte that changes elsewhere in a larger file, whose size stays, is NOT seen.
// Never throws for a file: see FileStamp::digest. Several threads when there are many files.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files);
// The same with names of the caller's, one for each file.
[[nodiscard]] std::vector<FileStamp> stamps_of(std::span<const std::filesystem::path> files, std::vector<std::string> names);

// What tells the bytes of a file apart from all others, wherever it lies, as far as its stamp has seen them; "" = it could not be
// read.
[[nodiscard]] std::string content_text(const FileStamp& stamp);

// Names relative to the deepest folder that all are in. Links are not followed.
[[nodiscard]] std::vector<std::string> relative_names(std::span<const std::filesystem::path> files);

}  // namespace millrace::data
