// A file system that fails on purpose, for tests of everything that writes files.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/base/fs.h"

namespace millrace {

// The faults to simulate. Calls are counted from 0. All calls of Fs except exists() count, and write, sync and close of its
// files.
struct Faults {
  std::int64_t fail_at = -1;   // index of the call that fails, counted from 0; -1 = no call
  int error_number = 5;        // the errno of the failing call (EIO)
  bool keeps_failing = false;  // all later calls fail too, as if the machine had stopped
  bool tears_write = false;    // a failing write leaves its first half in the file
  // Bytes that all files together may have; beyond them, a write fails with ENOSPC.
  std::uint64_t capacity = std::numeric_limits<std::uint64_t>::max();
};

// Passes calls on to `real` until a fault is due. Thread-safe; files must not outlive it.
class FaultFs : public Fs {
 public:
  explicit FaultFs(Fs& real, Faults faults = {}) : real_(real), faults_(faults) {}

  // Number of calls so far. A test first runs without faults, and then once for each call, with that call failing.
  [[nodiscard]] std::int64_t calls() const;
  // A line per call, such as "write a/b", in order.
  [[nodiscard]] std::vector<std::string> log() const;
  // Simulates a power cut: every file that was written through this object is cut back to the size that it had at its last
  // sync().
  void drop_unsynced();

  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> create_new(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> append(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove_all(const std::filesystem::path& path) override;
  void create_directories(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;
  [[nodiscard]] std::string read_file(const std::filesystem::path& path) override;
  [[nodiscard]] bool exists(const std::filesystem::path& path) override;
  [[nodiscard]] std::vector<std::string> list(const std::filesystem::path& path) override;
  [[nodiscard]] std::uint64_t free_bytes(const std::filesystem::path& path) override;

 private:
  class File;
  struct Sizes {
    std::filesystem::path path;
    std::uint64_t written;
    std::uint64_t synced;
  };
  void count(const char* call, const std::filesystem::path& path);  // throws if this call is due to fail
  [[nodiscard]] bool is_due(const char* call, const std::filesystem::path& path);
  std::unique_ptr<WritableFile> track(std::unique_ptr<WritableFile> file, const std::filesystem::path& path, std::uint64_t size);

  Fs& real_;
  Faults faults_;
  mutable std::mutex mutex_;  // guards the members below
  std::uint64_t bytes_ = 0;
  std::vector<std::string> log_;
  std::vector<std::shared_ptr<Sizes>> files_;
};

}  // namespace millrace
