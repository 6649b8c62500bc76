#include "millrace/base/fs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

// Owns a descriptor and closes it on destruction, unless release() has given it to the caller.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

int open_retrying(const stdfs::path& path, int flags, mode_t mode = 0) noexcept {
  for (;;) {
    const int number = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (number >= 0 || errno != EINTR) return number;
  }
}

class PosixFile final : public WritableFile {
 public:
  PosixFile(stdfs::path path, int flags)
      : path_(std::move(path)), descriptor_(open_retrying(path_, O_WRONLY | O_CREAT | flags, 0666)) {
    if (descriptor_.number() < 0) throw FsError("open", path_, errno);
  }
  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw FsError("write", path_, errno);
      // A device that accepts no bytes would keep this loop running for ever.
      if (written == 0) throw FsError("write", path_, ENOSPC);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync() override {
    if (::fsync(descriptor_.number()) != 0) throw FsError("fsync", path_, errno);
  }
  void close() override {
    const int number = descriptor_.release();
    if (number >= 0 && ::close(number) != 0 && errno != EINTR) throw FsError("close", path_, errno);
  }

 private:
  stdfs::path path_;
  Descriptor descriptor_;
};

class PosixFs final : public Fs {
 public:
  std::unique_ptr<WritableFile> create(const stdfs::path& path) override { return std::make_unique<PosixFile>(path, O_TRUNC); }
  std::unique_ptr<WritableFile> create_new(const stdfs::path& path) override {
    return std::make_unique<PosixFile>(path, O_EXCL | O_NOFOLLOW);
  }
  std::unique_ptr<WritableFile> append(const stdfs::path& path) override { return std::make_unique<PosixFile>(path, O_APPEND); }
  void rename(const stdfs::path& from, const stdfs::path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) throw FsError("rename", to, errno);
  }
  void remove_all(const stdfs::path& path) override {
    std::error_code code;
    stdfs::remove_all(path, code);
    if (code) throw FsError("remove", path, code.value());
  }
  void create_directories(const stdfs::path& path) override {
    std::error_code code;
    stdfs::create_directories(path, code);
    if (!code && !stdfs::is_directory(path, code) && !code) code = std::make_error_code(std::errc::not_a_directory);
    if (code) throw FsError("create folder", path, code.value());
  }
  void sync_directory(const stdfs::path& path) override {
    const Descriptor folder(open_retrying(path, O_RDONLY | O_DIRECTORY));
    if (folder.number() < 0) throw FsError("open folder", path, errno);
    // Some network file systems can't sync a folder and report EINVAL. Nothing more can be done in that case.
    if (::fsync(folder.number()) != 0 && errno != EINVAL) throw FsError("fsync folder", path, errno);
  }
  std::string read_file(const stdfs::path& path) override {
    // O_NONBLOCK is needed because a named pipe in a file's place must not block this call; the pipe is refused below.
    const Descriptor file(open_retrying(path, O_RDONLY | O_NONBLOCK));
    if (file.number() < 0) throw FsError("open", path, errno);
    struct stat info {};
    if (::fstat(file.number(), &info) != 0) throw FsError("stat", path, errno);
    if (S_ISDIR(info.st_mode)) throw FsError("read", path, EISDIR);
    if (!S_ISREG(info.st_mode)) throw FsError("read (not a regular file)", path, EINVAL);
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t used = 0;
    while (used < text.size()) {
      const ssize_t got = ::read(file.number(), text.data() + used, text.size() - used);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw FsError("read", path, errno);
      if (got == 0) break;
      used += static_cast<std::size_t>(got);
    }
    text.resize(used);
    return text;
  }
  bool exists(const stdfs::path& path) override {
    std::error_code code;
    return stdfs::exists(path, code);
  }
  std::vector<std::string> list(const stdfs::path& path) override {
    std::error_code code;
    stdfs::directory_iterator entry(path, code);
    std::vector<std::string> names;
    for (; !code && entry != stdfs::directory_iterator(); entry.increment(code)) {
      names.push_back(entry->path().filename().string());
    }
    if (code) throw FsError("list", path, code.value());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::uint64_t free_bytes(const stdfs::path& path) override {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) throw FsError("statvfs", path, errno);
    return std::uint64_t{info.f_bavail} * info.f_frsize;
  }
};

}  // namespace

FsError::FsError(std::string call, std::filesystem::path path, int error_number)
    : path_(std::move(path)),
      error_number_(error_number),
      text_(std::move(call) + " " + path_.string() + ": " + std::generic_category().message(error_number)) {}

std::string remedy_for(int error_number) {
  switch (error_number) {
    case EMFILE:
      return "this process may open no more files: raise the limit (ulimit -n 65536) and try again";
    case ENFILE:
      return "the machine can open no more files: end programs that hold many open files, or have fs.file-max raised";
    case EFBIG:
      return "the file would exceed the limit on file sizes: raise the limit (ulimit -f unlimited), or write to another file "
             "system";
    case ENOSPC:
      return "free space there, or choose another folder (df -h shows the space, df -i the number of files left)";
    case EDQUOT:
      return "your disk quota there is used up: remove some of your files, or choose another folder";
    case EACCES:
    case EPERM:
      return "check the permissions of the path and of the folders above it";
    case EROFS:
      return "the file system is read-only: choose another folder, or have it mounted for writing";
    case ENAMETOOLONG:
      return "use a shorter name or path";
    case ENOENT:
    case ENOTDIR:
      return "check the path: a folder or file in it does not exist";
    case EISDIR:
      return "name a file: the path leads to a folder";
    case ELOOP:
      return "repair or remove the symbolic link: it leads back to itself";
    case EIO:
      return "check the disk (dmesg says more), or choose another folder";
    default:
      return "check the path and its permissions";
  }
}

Fs& Fs::real() {
  static PosixFs fs;
  return fs;
}

AtomicFile::AtomicFile(Fs& fs, std::filesystem::path path) : fs_(fs), path_(std::move(path)) {
  static std::atomic<std::uint64_t> counter{0};
  constexpr int kTries = 100;  // number of names to try; a name may be taken, because a dead process, or one in another
                               // container, may have had this process ID
  for (int i = 1; !file_; ++i) {
    stdfs::path name = path_;
    name += ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1));
    try {
      file_ = fs_.create_new(name);
      temporary_ = std::move(name);
    } catch (const FsError& error) {
      if (error.error_number() != EEXIST || i == kTries) throw;
    }
  }
}

AtomicFile::~AtomicFile() {
  if (temporary_.empty()) return;
  file_.reset();
  try {
    fs_.remove_all(temporary_);
  } catch (const FsError&) {  // this error is dropped, because the failure that led here is the one to report
  }
}

void AtomicFile::finish() {
  file_->sync();
  file_->close();
  fs_.rename(temporary_, path_);
  temporary_.clear();
  fs_.sync_directory(path_.has_parent_path() ? path_.parent_path() : stdfs::path("."));
}

void AtomicFile::finish_unsynced() {
  file_->close();
  fs_.rename(temporary_, path_);
  temporary_.clear();
}

void write_atomically(Fs& fs, const std::filesystem::path& path, const std::function<void(WritableFile&)>& write) {
  AtomicFile file(fs, path);
  write(file.file());
  file.finish();
}

void write_atomically(Fs& fs, const std::filesystem::path& path, std::string_view text) {
  write_atomically(fs, path, [&](WritableFile& file) { file.write(std::as_bytes(std::span(text.data(), text.size()))); });
}

}  // namespace millrace
