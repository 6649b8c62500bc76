// The file system as snapshots, caches and run files see it. All of their writes go through one Fs, so that tests can make the
// k-th call fail, fill the disk or lose unsynced data. Reads of training data do not use Fs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Thrown by Fs calls. Carries errno, so that callers can tell a full disk from a missing file.
class FsError : public std::exception {
 public:
  FsError(std::string call, std::filesystem::path path, int error_number);
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] int error_number() const noexcept { return error_number_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int error_number_;
  std::string text_;
};

// Returns advice for the `next` of a message about a file that can't be opened, read or written because of this error.
[[nodiscard]] std::string remedy_for(int error_number);

// A file open for writing. Destruction closes it without throwing; call close() to learn of errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;  // writes the whole span or throws FsError
  virtual void sync() = 0;                                   // calls fsync for the file
  virtual void close() = 0;
};

// Thread-safe. Paths are used as given. Every function throws FsError on failure unless its comment says otherwise.
class Fs {
 public:
  virtual ~Fs() = default;
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;  // an existing file is emptied
  // Creates a file that does not exist yet. Fails with EEXIST if the name is taken, even by a link that leads nowhere.
  virtual std::unique_ptr<WritableFile> create_new(const std::filesystem::path& path) = 0;
  virtual std::unique_ptr<WritableFile> append(const std::filesystem::path& path) = 0;  // the file is created if it is missing
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual void remove_all(const std::filesystem::path& path) = 0;  // a missing path is no error
  virtual void create_directories(const std::filesystem::path& path) = 0;
  virtual void sync_directory(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual std::string read_file(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual bool exists(const std::filesystem::path& path) = 0;                    // never throws
  [[nodiscard]] virtual std::vector<std::string> list(const std::filesystem::path& path) = 0;  // names of the entries, sorted
  [[nodiscard]] virtual std::uint64_t free_bytes(const std::filesystem::path& path) = 0;
  static Fs& real();  // returns the Fs that calls the operating system
};

// A file that appears under its name whole or not at all. Until finish() its bytes are in a new file with a unique name in the
// same folder. So several writers of the same path don't disturb each other, and the last writer wins.
class AtomicFile {
 public:
  AtomicFile(Fs& fs, std::filesystem::path path);
  ~AtomicFile();  // removes the file unless finish() or finish_unsynced() succeeded
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  [[nodiscard]] WritableFile& file() noexcept { return *file_; }
  [[nodiscard]] const std::filesystem::path& temporary() const noexcept { return temporary_; }
  void finish();           // fsync, rename, fsync of the folder
  void finish_unsynced();  // renames without fsync; for files whose reader checks them and can make them again after a power cut

 private:
  Fs& fs_;
  std::filesystem::path path_;
  std::filesystem::path temporary_;  // the file's name until it is finished; "" afterwards
  std::unique_ptr<WritableFile> file_;
};

// Writes a file through an AtomicFile in one call; if `write` throws, no file is left.
void write_atomically(Fs& fs, const std::filesystem::path& path, const std::function<void(WritableFile&)>& write);
void write_atomically(Fs& fs, const std::filesystem::path& path, std::string_view text);

}  // namespace millrace
