// Names of folders under <run>/snapshots.
//
//   step-00001200               a snapshot
//   step-00001200.2             a snapshot of a step whose name is taken by a damaged snapshot or a foreign folder
//   .tmp-step-00001200-<pid>    a snapshot that is being written, or that a killed save left
//   .tmp-gone-step-00001200-<pid>   a snapshot that is being removed
//   .old-step-00001200-<pid>    a snapshot that is being replaced by a new one of the same step; valid until the new one is in
// place
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace::snapshot::detail {

inline constexpr std::string_view kTemporary = ".tmp-";
inline constexpr std::string_view kRemoved = ".tmp-gone-";
inline constexpr std::string_view kReplaced = ".old-";

[[nodiscard]] std::filesystem::path snapshots_of(const std::filesystem::path& run);
[[nodiscard]] std::string folder_name(std::int64_t step, int copy = 1);
[[nodiscard]] std::string beside_name(std::string_view prefix, std::string_view folder);  // the name contains this process's id

struct FolderName {
  std::int64_t step = 0;
  int copy = 1;
  std::string folder;  // "step-NNNNNNNN", "step-NNNNNNNN.2"
  long process = 0;    // process id in a temporary folder's name; 0 = a snapshot's own folder
};
// Parses a folder's name; nullopt for a name that these functions never make.
[[nodiscard]] std::optional<FolderName> parse_name(std::string_view name);
[[nodiscard]] std::optional<FolderName> parse_beside(std::string_view prefix, std::string_view name);

struct Candidate {
  std::string name;
  std::int64_t step = 0;
  int copy = 1;
  bool is_replaced = false;
};
// Lists the snapshots in order of step, a replaced snapshot before its replacement. Reads only names. Throws FsError if the
// folder can't be read.
[[nodiscard]] std::vector<Candidate> candidates(Fs& fs, const std::filesystem::path& snapshots);

[[nodiscard]] bool is_taken(const std::filesystem::path& path);  // true if the name exists, even as a dangling link

// Returns the mutex that a thread holds while it moves snapshots, so that a save and a Keeper do not see each other's
// intermediate states.
[[nodiscard]] std::mutex& moves_mutex();

// While this object exists, a Keeper leaves the folder alone.
class WritingFolder {
 public:
  explicit WritingFolder(std::filesystem::path path);
  ~WritingFolder();
  WritingFolder(const WritingFolder&) = delete;
  WritingFolder& operator=(const WritingFolder&) = delete;
  [[nodiscard]] static bool is_written(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
};

}  // namespace millrace::snapshot::detail
