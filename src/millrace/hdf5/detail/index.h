// What millrace-hdf5 said about files, kept between starts in one file for each set of data sets and common folder of the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "millrace/base/fs.h"

namespace millrace::hdf5::detail {

inline constexpr std::size_t kHeadBytes = 4096;

// By what an index knows a file again.
struct Stamp {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint32_t head = 0;  // CRC32C of the first kHeadBytes
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// find() is const and thread-safe.
class Index {
 public:
  // `folder` is where indices lie. One that is missing, damaged or of another version is empty: no bytes in it do harm, and what
  // they say of a file is checked like an answer of millrace-hdf5.
  Index(const std::filesystem::path& folder, std::span<const std::filesystem::path> files, std::span<const std::string> datasets);

  // "" when nothing is known of a file with this stamp. The text lives as long as the index.
  [[nodiscard]] std::string_view find(const std::filesystem::path& file, const Stamp& stamp) const;
  // Taken at the next save(). Of a file that changed in the last two seconds nothing is kept: it could change again within the
  // tick of the file system's clock and look the same.
  void add(const std::filesystem::path& file, const Stamp& stamp, const std::string& answer);
  // Writes what was found and added, whole or not at all, and forgets files that are gone. Nothing is written when nothing is new
  // or the disk refuses: the next start is a slow one, no more.
  void save(Fs& fs);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Entry {
    Stamp stamp;
    std::string_view answer;
  };
  void read();
  std::filesystem::path path_;
  std::string bytes_;                                       // of the index file; entries_ looks into it
  std::unordered_map<std::string_view, Entry> entries_;     // by absolute path
  std::unordered_map<std::string, std::string> new_bytes_;  // of entries added, by absolute path
};

}  // namespace millrace::hdf5::detail
