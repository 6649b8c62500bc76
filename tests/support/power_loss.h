// A file system that records its calls, and constructs the states that a power cut could leave, for tests of everything that
// writes files.
//
// The model is what POSIX promises and no more. The bytes of a file are safe once it was synced; bytes written since may be there
// or not, the last write also in part. An entry of a folder (a file or folder made, moved or removed there) is safe once that
// folder was synced; each change since is there or not, independently of the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace {

// Passes all calls on to `real`. A file can be moved only within its folder. Thread-safe.
class PowerLossFs : public Fs {
 public:
  // The present contents of `root` are safe. Only changes below `root` are recorded.
  PowerLossFs(Fs& real, std::filesystem::path root);
  ~PowerLossFs() override;

  // Number of changes so far: a cut may come before each change and after the last.
  [[nodiscard]] std::size_t changes() const;

  // A state that a cut can leave.
  struct State {
    std::size_t changes = 0;  // number of changes before the cut
    // Maps a path below the root to the bytes of the file; nullopt = a folder.
    std::map<std::string, std::optional<std::string>> entries;
    // Writes the state into an empty folder.
    void make(const std::filesystem::path& folder) const;
  };
  // Calls `visit` with every state that a cut after each number of changes from `first` on can leave. Equal states of the same
  // moment are visited once. If more than 2^`most_open` combinations of unsafe entries are possible, a random selection of that
  // size is visited (keyed, repeatable).
  void for_each_state(std::size_t first, unsigned most_open, const std::function<void(const State&)>& visit) const;

  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> create_new(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> append(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_all(const std::filesystem::path& path) override;
  void create_directories(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;
  [[nodiscard]] std::string read_file(const std::filesystem::path& path) override { return real_.read_file(path); }
  [[nodiscard]] bool exists(const std::filesystem::path& path) override { return real_.exists(path); }
  [[nodiscard]] std::vector<std::string> list(const std::filesystem::path& path) override { return real_.list(path); }
  [[nodiscard]] std::uint64_t free_bytes(const std::filesystem::path& path) override { return real_.free_bytes(path); }

 private:
  class File;
  struct Node;
  struct Change;
  using Entries = std::map<std::string, std::size_t>;  // maps a name to its node

  // The safe and the unsafe contents after a number of changes.
  struct Moment {
    std::vector<Entries> entries;      // the safe entries of each folder
    std::vector<std::string> safe;     // the safe bytes of each file
    std::vector<std::string> written;  // the bytes of each file, including those that may be lost
    std::vector<std::size_t> open;     // positions in the log of the changes of entries that may be lost
  };
  static void apply(std::vector<Entries>& entries, const Change& change);
  [[nodiscard]] Moment moment_after(std::size_t changes) const;
  [[nodiscard]] std::vector<std::vector<std::string>> contents_of(const Moment& moment, std::size_t changes) const;

  [[nodiscard]] std::optional<std::string> below_root(const std::filesystem::path& path) const;
  std::size_t node_at(const std::filesystem::path& path) const;
  std::size_t add_node(bool is_folder, std::string bytes);
  std::unique_ptr<WritableFile> added(std::unique_ptr<WritableFile> file, const std::filesystem::path& path);
  void note(Change change);
  void remember_folder(const std::filesystem::path& folder, std::size_t node);
  void forget(std::size_t folder, const std::string& name);
  void states_after(std::size_t changes, unsigned most_open, const std::function<void(const State&)>& visit) const;

  Fs& real_;
  std::filesystem::path root_;
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Node> nodes_;   // 0 = the root; nodes are never removed
  std::vector<Change> log_;
};

}  // namespace millrace
