// Stores what millrace-hdf5 answered about files, so that later starts need not ask again. Runs share an index file if they read
// the same HDF5 data sets from files whose deepest common folder is the same.
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

// The properties by which an unchanged file is recognised.
struct Stamp {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint32_t head = 0;  // CRC32C of the first kHeadBytes
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

// Stores the answers. find() is const and thread-safe.
class Index {
 public:
  // `folder` holds the index files. An index that is missing, damaged or of another version is read as empty. The bytes of an
  // index can do no harm, because its answers are checked like those of millrace-hdf5.
  Index(const std::filesystem::path& folder, std::span<const std::filesystem::path> files, std::span<const std::string> datasets);

  // Returns the answer for a file with this stamp; "" if the index has none. The text lives as long as the index.
  [[nodiscard]] std::string_view find(const std::filesystem::path& file, const Stamp& stamp) const;
  // Adds an answer for the next save(). Ignores a file that changed in the last two seconds, because it could change again within
  // a tick of the file system's clock and look the same.
  void add(const std::filesystem::path& file, const Stamp& stamp, const std::string& answer);
  // Writes the answers that the index had and those that were added, whole or not at all, and drops files that no longer exist.
  // Writes nothing if no answer was added or the disk refuses; then only the next start is slower.
  void save(Fs& fs);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  struct Entry {
    Stamp stamp;
    std::string_view answer;
  };
  void read();
  std::filesystem::path path_;
  std::string bytes_;                                       // bytes of the index file; entries_ refers to them
  std::unordered_map<std::string_view, Entry> entries_;     // the key is the file's absolute path
  std::unordered_map<std::string, std::string> new_bytes_;  // bytes of the added entries, by absolute path
};

}  // namespace millrace::hdf5::detail
