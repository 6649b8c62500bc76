// Opens many files at once. Files that an index knows need no child; a few children describe the other files in parallel.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/hdf5/detail/index.h"
#include "millrace/hdf5/detail/loadable.h"
#include "millrace/hdf5/detail/process.h"
#include "millrace/hdf5/detail/wire.h"
#include "millrace/hdf5/file.h"
#include "millrace/system/process_limits.h"

namespace millrace::hdf5 {
namespace {

using detail::kFilesAtOnce;

constexpr std::size_t kMostThreads = 8;

std::atomic<std::uint64_t> g_described{0};

[[noreturn]] void no_answer(const std::filesystem::path& path, detail::Process& child) {
  throw DataError({.what = "the program that reads HDF5 files gave no answer: " + child.how_it_ended(),
                   .where = quoted(path.string()),
                   .next = "check that millrace-hdf5 is the one built with this program, and that memory is free"});
}

// Returns the largest number of threads to use. It is at most one per core, and so small that the threads together hold at most
// a quarter of the files that this process may open.
std::size_t most_threads() {
  const std::uint64_t files = limit_of(RLIMIT_NOFILE).value_or(1U << 16U);
  const std::size_t most = std::min<std::size_t>(kMostThreads, files / (4 * kFilesAtOnce));
  return std::min<std::size_t>(std::max<std::size_t>(1, most), std::max(1U, std::thread::hardware_concurrency()));
}

// The work of one call of open_all().
class Opening {
 public:
  Opening(std::span<const std::filesystem::path> paths, std::span<const std::string> datasets, const OpenOptions& options,
          bool collects)
      : paths_(paths),
        all_(datasets.empty()),
        direct_(options.direct),
        collects_(collects),
        files_(paths.size()),
        errors_(paths.size()) {
    detail::WireWriter request;
    request.put(static_cast<std::uint32_t>(datasets.size()));
    for (const std::string& name : datasets) request.text(name.starts_with('/') ? name : '/' + name);
    request_ = request.bytes();
    if (options.index_folder.empty() || paths.empty()) return;
    index_.emplace(options.index_folder, paths, datasets);
    fresh_.resize(paths.size());
  }

  // Opens the files and returns them in order, with null for a file that has an error. Errors go to `failed`, in order; without
  // `failed` the first error is thrown.
  std::vector<std::shared_ptr<const File>> run(const File::OnFailure& failed) {
    const std::size_t groups = (paths_.size() + kFilesAtOnce - 1) / kFilesAtOnce;
    const std::size_t most = most_threads();
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < std::min(groups, most) && may_map(thread_stack_bytes()); ++i) {
      try {
        others.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        break;  // no more threads can be made: the existing threads do the work
      }
    }
    work();
    for (std::thread& thread : others) thread.join();
    if (fatal_) std::rethrow_exception(fatal_);
    if (index_) keep();
    return hand_over(failed);
  }

 private:
  struct Fresh {
    detail::Stamp stamp;
    std::string answer;  // the child's answer; "" if the answer is not kept
  };

  // Handles groups of files until all are done.
  void work() noexcept {
    try {
      std::optional<detail::Process> child;
      for (std::size_t begin = next_.fetch_add(kFilesAtOnce); begin < paths_.size(); begin = next_.fetch_add(kFilesAtOnce)) {
        if (!collects_ && begin > first_bad_) return;
        open_group(begin, std::min(paths_.size(), begin + kFilesAtOnce), child);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!fatal_) fatal_ = std::current_exception();
      next_ = paths_.size();
    }
  }

  void open_group(std::size_t begin, std::size_t end, std::optional<detail::Process>& child) {
    std::vector<std::size_t> unknown;
    std::vector<int> descriptors;
    for (std::size_t i = begin; i < end; ++i) {
      attempt(i, [&] {
        if (is_known(i)) return;
        unknown.push_back(i);
        descriptors.push_back(files_[i]->descriptor());
      });
    }
    if (unknown.empty()) return;
    bool alive = true;
    if (!child) {
      child.emplace("describe_all", std::span<const int>());
      alive = child->send_frame(request_);
    }
    alive = alive && child->send_files(descriptors);
    for (const std::size_t i : unknown) {
      std::optional<std::string> answer;
      if (alive) answer = child->receive_frame();
      alive = answer.has_value();
      attempt(i, [&] {
        if (!alive) no_answer(paths_[i], *child);
        ++g_described;
        const bool agrees = files_[i]->load(*answer, all_, /*compares=*/true);
        if (!direct_) files_[i]->read_by_library();
        if (index_ && agrees) fresh_[i].answer = *std::move(answer);
      });
    }
    if (!alive) child.reset();
  }

  // Opens the file. Returns true if the index knows the contents of the file.
  bool is_known(std::size_t i) {
    files_[i] = detail::open_loadable(paths_[i]);
    if (!index_) return false;
    fresh_[i].stamp = files_[i]->stamp();
    const std::string_view answer = index_->find(paths_[i], fresh_[i].stamp);
    if (answer.empty()) return false;
    try {
      files_[i]->load(answer, all_, /*compares=*/false);
      if (!direct_) files_[i]->read_by_library();
      return true;
    } catch (const DataError&) {  // the index was wrong, so the child describes the file
      files_[i] = detail::open_loadable(paths_[i]);
      return false;
    }
  }

  template <class Step>
  void attempt(std::size_t i, Step step) {
    doing_moved();
    try {
      step();
    } catch (const DataError& error) {
      errors_[i] = error;
      files_[i].reset();
      for (std::size_t first = first_bad_; i < first && !first_bad_.compare_exchange_weak(first, i);) {
      }
    }
  }

  void keep() {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (!fresh_[i].answer.empty()) index_->add(paths_[i], fresh_[i].stamp, fresh_[i].answer);
    }
    index_->save(Fs::real());
  }

  std::vector<std::shared_ptr<const File>> hand_over(const File::OnFailure& failed) {
    std::vector<std::shared_ptr<const File>> files(paths_.size());
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      files[i] = std::move(files_[i]);
      if (!errors_[i]) continue;
      if (!failed) throw DataError(*errors_[i]);
      failed(i, *errors_[i]);
    }
    return files;
  }

  std::span<const std::filesystem::path> paths_;
  bool all_;
  bool direct_;
  bool collects_;  // true: errors are collected, and the other files are still opened
  std::string request_;
  std::optional<detail::Index> index_;
  // Each element is written only by the thread that handles the file's group.
  std::vector<std::shared_ptr<detail::LoadableFile>> files_;
  std::vector<std::optional<DataError>> errors_;
  std::vector<Fresh> fresh_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> first_bad_{std::numeric_limits<std::size_t>::max()};
  std::mutex mutex_;  // protects the members below
  std::exception_ptr fatal_;
};

}  // namespace

std::vector<std::shared_ptr<const File>> File::open_all(std::span<const std::filesystem::path> paths,
                                                        std::span<const std::string> datasets, const OnFailure& failed,
                                                        const OpenOptions& options) {
  return Opening(paths, datasets, options, failed != nullptr).run(failed);
}

std::shared_ptr<const File> File::open(const std::filesystem::path& path, std::span<const std::string> datasets) {
  return open_all(std::span(&path, 1), datasets).front();
}

std::uint64_t files_described() noexcept { return g_described; }

}  // namespace millrace::hdf5
