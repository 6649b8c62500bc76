#include "tests/support/fault_fs.h"

#include <algorithm>
#include <cerrno>

namespace millrace {
namespace {

namespace stdfs = std::filesystem;

// True if `path` is `root` or lies below `root`.
bool is_within(const stdfs::path& path, const stdfs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

}  // namespace

class FaultFs::File final : public WritableFile {
 public:
  File(FaultFs& fs, std::unique_ptr<WritableFile> file, std::shared_ptr<Sizes> sizes)
      : fs_(fs), file_(std::move(file)), sizes_(std::move(sizes)) {}

  void write(std::span<const std::byte> bytes) override {
    const stdfs::path path = current_path();
    std::size_t kept = bytes.size();
    int error_number = 0;
    if (fs_.is_due("write", path)) {
      kept = fs_.faults_.tears_write ? bytes.size() / 2 : 0;
      error_number = fs_.faults_.error_number;
    }
    {
      const std::lock_guard lock(fs_.mutex_);
      const std::uint64_t room = fs_.faults_.capacity - std::min(fs_.bytes_, fs_.faults_.capacity);
      if (kept > room) {
        kept = static_cast<std::size_t>(room);
        error_number = error_number == 0 ? ENOSPC : error_number;
      }
      fs_.bytes_ += kept;
      sizes_->written += kept;
    }
    if (kept > 0 || error_number == 0) file_->write(bytes.first(kept));
    if (error_number != 0) throw FsError("write", path, error_number);
  }
  void sync() override {
    fs_.count("sync", current_path());
    file_->sync();
    const std::lock_guard lock(fs_.mutex_);
    sizes_->synced = sizes_->written;
  }
  void close() override {
    fs_.count("close", current_path());
    file_->close();
  }

 private:
  stdfs::path current_path() const {
    const std::lock_guard lock(fs_.mutex_);
    return sizes_->path;
  }

  FaultFs& fs_;
  std::unique_ptr<WritableFile> file_;
  std::shared_ptr<Sizes> sizes_;
};

std::int64_t FaultFs::calls() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(log_.size());
}

std::vector<std::string> FaultFs::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

bool FaultFs::is_due(const char* call, const stdfs::path& path) {
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<std::int64_t>(log_.size());
  log_.push_back(std::string(call) + " " + path.string());
  if (faults_.fail_at < 0) return false;
  return number == faults_.fail_at || (faults_.keeps_failing && number > faults_.fail_at);
}

void FaultFs::count(const char* call, const stdfs::path& path) {
  if (is_due(call, path)) throw FsError(call, path, faults_.error_number);
}

void FaultFs::drop_unsynced() {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Sizes>& file : files_) {
    if (real_.exists(file->path)) stdfs::resize_file(file->path, file->synced);
    file->written = file->synced;
  }
}

std::unique_ptr<WritableFile> FaultFs::track(std::unique_ptr<WritableFile> file, const stdfs::path& path, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(files_, [&](const auto& each) { return each->path == path; });
  const std::uint64_t synced = known == files_.end() ? size : std::min(size, (*known)->synced);
  if (known != files_.end()) files_.erase(known);
  files_.push_back(std::make_shared<Sizes>(Sizes{.path = path, .written = size, .synced = synced}));
  return std::make_unique<File>(*this, std::move(file), files_.back());
}

std::unique_ptr<WritableFile> FaultFs::create(const stdfs::path& path) {
  count("create", path);
  return track(real_.create(path), path, 0);
}

std::unique_ptr<WritableFile> FaultFs::create_new(const stdfs::path& path) {
  count("create", path);
  return track(real_.create_new(path), path, 0);
}

std::unique_ptr<WritableFile> FaultFs::append(const stdfs::path& path) {
  count("append", path);
  const std::uint64_t size = real_.exists(path) ? stdfs::file_size(path) : 0;
  return track(real_.append(path), path, size);
}

void FaultFs::rename(const stdfs::path& from, const stdfs::path& to) {
  count("rename", to);
  real_.rename(from, to);
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [&](const auto& file) { return is_within(file->path, to); });
  for (const std::shared_ptr<Sizes>& file : files_) {
    if (file->path == from) {
      file->path = to;
    } else if (is_within(file->path, from)) {
      file->path = to / file->path.lexically_relative(from);
    }
  }
}

void FaultFs::remove_all(const stdfs::path& path) {
  count("remove_all", path);
  real_.remove_all(path);
  const std::lock_guard lock(mutex_);
  std::erase_if(files_, [&](const auto& file) { return is_within(file->path, path); });
}

void FaultFs::create_directories(const stdfs::path& path) {
  count("create_directories", path);
  real_.create_directories(path);
}

void FaultFs::sync_directory(const stdfs::path& path) {
  count("sync_directory", path);
  real_.sync_directory(path);
}

std::string FaultFs::read_file(const stdfs::path& path) {
  count("read_file", path);
  return real_.read_file(path);
}

bool FaultFs::exists(const stdfs::path& path) { return real_.exists(path); }

std::vector<std::string> FaultFs::list(const stdfs::path& path) {
  count("list", path);
  return real_.list(path);
}

std::uint64_t FaultFs::free_bytes(const stdfs::path& path) {
  count("free_bytes", path);
  const std::lock_guard lock(mutex_);
  const std::uint64_t room = faults_.capacity - std::min(bytes_, faults_.capacity);
  return std::min(room, real_.free_bytes(path));
}

}  // namespace millrace
