// A recipe that is sick on purpose, for the doctor's tests: each key plants one fault.
#pragma once

#include "millrace/base/fs.h"
#include "millrace/train/run/run.h"

namespace millrace::toys {

[[nodiscard]] Entry patient();

// The real file system with slow writes.
class SlowFs : public Fs {
 public:
  SlowFs(Fs& real, double write_ms) : real_(real), write_ms_(write_ms) {}
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> create_new(const std::filesystem::path& path) override;
  std::unique_ptr<WritableFile> append(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override { real_.rename(from, to); }
  void remove_all(const std::filesystem::path& path) override { real_.remove_all(path); }
  void create_directories(const std::filesystem::path& path) override { real_.create_directories(path); }
  void sync_directory(const std::filesystem::path& path) override { real_.sync_directory(path); }
  [[nodiscard]] std::string read_file(const std::filesystem::path& path) override { return real_.read_file(path); }
  [[nodiscard]] bool exists(const std::filesystem::path& path) override { return real_.exists(path); }
  [[nodiscard]] std::vector<std::string> list(const std::filesystem::path& path) override { return real_.list(path); }
  [[nodiscard]] std::uint64_t free_bytes(const std::filesystem::path& path) override { return real_.free_bytes(path); }

 private:
  Fs& real_;
  double write_ms_;
};

}  // namespace millrace::toys
