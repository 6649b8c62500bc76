#include "millrace/data/loader/slow_reads.h"

#include <algorithm>
#include <utility>

namespace millrace::data::detail {
namespace {

// Returns the name of the file: "a.h5" for "a.h5 row 12".
std::string file_of(std::string where) {
  for (const char* place : {" row ", " line ", " bin "}) where.resize(std::min(where.rfind(place), where.size()));
  return where;
}

constinit thread_local bool gave_kept_sample = false;

}  // namespace

void note_kept_sample() noexcept { gave_kept_sample = true; }
bool take_kept_sample() noexcept { return std::exchange(gave_kept_sample, false); }

void SlowReads::note(std::int64_t nanoseconds, std::int64_t rows, const std::function<std::string()>& where) noexcept {
  const std::int64_t usual_rows = usual_rows_.load(std::memory_order_relaxed);
  const double usual = usual_rows == 0 ? 0
                                       : static_cast<double>(usual_ns_.load(std::memory_order_relaxed)) /
                                             static_cast<double>(usual_rows) * static_cast<double>(rows);
  const double excess = static_cast<double>(nanoseconds) - usual;
  if (usual_rows < kFirst || static_cast<double>(nanoseconds) < kTimes * usual || excess < static_cast<double>(kNanoseconds)) {
    usual_ns_.fetch_add(nanoseconds, std::memory_order_relaxed);
    usual_rows_.fetch_add(rows, std::memory_order_relaxed);
    return note_quick(where);
  }
  try {
    const std::string place = where();
    const std::string name = file_of(place);
    const std::lock_guard lock(mutex_);
    if (files_.size() >= kMost && !files_.contains(name)) return;
    Loader::SlowFile& file = files_[name];
    file.name = name;
    ++file.reads;
    file.excess_seconds += excess * 1e-9;
    file.usual_seconds = usual / static_cast<double>(rows) * 1e-9;
    any_.store(true, std::memory_order_relaxed);
    const double each = static_cast<double>(nanoseconds) / static_cast<double>(rows) * 1e-9;
    if (each <= file.worst_seconds) return;
    file.worst_seconds = each;
    file.worst = place + (rows > 1 ? " and the " + std::to_string(rows - 1) + " read with it" : "");
  } catch (const std::exception&) {  // there is no memory for the name, so the measurement is dropped
  }
}

void SlowReads::note_quick(const std::function<std::string()>& where) noexcept {
  if (!any_.load(std::memory_order_relaxed) || quick_.fetch_add(1, std::memory_order_relaxed) % kLooks != 0) return;
  try {
    const std::string name = file_of(where());
    const std::lock_guard lock(mutex_);
    if (const auto file = files_.find(name); file != files_.end()) file->second.quick += kLooks;
  } catch (const std::exception&) {  // there is no memory for the name, so the measurement is dropped
  }
}

std::vector<Loader::SlowFile> SlowReads::files() const {
  std::vector<Loader::SlowFile> files;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, file] : files_) files.push_back(file);
  }
  std::ranges::sort(files, std::ranges::greater(), &Loader::SlowFile::excess_seconds);
  return files;
}

}  // namespace millrace::data::detail
