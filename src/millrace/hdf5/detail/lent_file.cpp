#include "millrace/hdf5/detail/lent_file.h"

#include <sys/resource.h>

#include <atomic>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::hdf5::detail {
namespace {

std::atomic<std::uint64_t> g_open{0};

std::uint64_t most_open() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : 512;
}

}  // namespace

LentFile::LentFile(const std::filesystem::path& path) : path_(path), file_(path) {
  ++g_open;
  size_ = file_->size();
  modified_ns_ = file_->modified_ns();
}

LentFile::~LentFile() { g_open -= static_cast<std::uint64_t>(file_.has_value()); }

void LentFile::return_if_many() {
  if (!file_ || g_open <= most_open()) return;
  file_.reset();
  --g_open;
}

void LentFile::check_same(const InputFile& again) const {
  if (again.size() == size_ && again.modified_ns() == modified_ns_) return;
  throw DataError({.what = quoted(path_.string()) + " has changed since it was opened",
                   .where = "it has " + std::to_string(again.size()) + " bytes, but at first it had " + std::to_string(size_),
                   .next = "don't change data while it is read; start again"});
}

}  // namespace millrace::hdf5::detail
