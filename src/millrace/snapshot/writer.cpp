#include "millrace/snapshot/writer.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/snapshot/detail/image.h"
#include "millrace/snapshot/snapshot.h"
#include "millrace/system/signals.h"
#include "millrace/telemetry/spans.h"

namespace millrace::snapshot {
namespace {

double milliseconds_since(std::int64_t begin_ns) { return static_cast<double>(steady_nanoseconds() - begin_ns) * 1e-6; }

// Runs `stage`; if `stage` throws, the exception goes into `saved`.
void attempt(Writer::Saved& saved, const std::filesystem::path& run, const std::function<void()>& stage) {
  try {
    detail::saving(run, saved.step, stage);
  } catch (const SnapshotError& error) {
    saved.error = error;
  } catch (const std::exception& error) {  // a mistake in Millrace; the exception must not leave the thread
    saved.error = SnapshotError(
        {"can't save the snapshot of step " + std::to_string(saved.step) + ": " + error.what(), run.string(),
         "please report this; until it is repaired, use --off=async_snapshot, which saves in the training loop's thread"});
  }
}

}  // namespace

struct Writer::Impl {
  struct Job {
    detail::Image image;
    Keeper::Retention retention;
    Writer::Saved saved;
    std::optional<detail::Room> room;  // if set, the job saves nothing; it only allocates this much memory
  };

  Impl(Fs& file_system, std::filesystem::path run_folder, const std::filesystem::path& began_from)
      : fs(file_system), run(std::move(run_folder)), keeper(fs, run, began_from) {}

  void write(Job& work) {
    const std::int64_t begin = steady_nanoseconds();
    attempt(work.saved, run, [&] {
      if (work.image.copied) work.image.copied->wait();
      work.saved.path = detail::write_image(fs, run, work.image);
    });
    if (!work.saved.error) {
      keeper.wrote(work.saved.path);
      keep_earlier_best(work.retention);
      keeper.retain(work.retention, [&](const std::string& text) { work.saved.warnings.push_back(text); });
    }
    work.saved.write_ms = milliseconds_since(begin);
  }

  // If a best step of `retention` has no snapshot (its save may have failed), adds the last best steps that all had snapshots,
  // so that the earlier best snapshots stay.
  void keep_earlier_best(Keeper::Retention& retention) {
    bool all_saved = false;
    try {
      const std::vector<Found> saved = list(fs, run);
      all_saved = std::ranges::all_of(
          retention.keep_steps, [&](std::int64_t step) { return std::ranges::find(saved, step, &Found::step) != saved.end(); });
    } catch (const SnapshotError&) {  // the folder can't be read, so it is not known which snapshots it has
    }
    if (all_saved)
      best_steps = retention.keep_steps;
    else
      retention.keep_steps.insert(retention.keep_steps.end(), best_steps.begin(), best_steps.end());
  }

  void make(const detail::Room& room) noexcept {
    try {
      room.make_in(memory);
    } catch (const std::exception&) {  // not reported here, because the save that needs the memory will report it
    }
  }

  void serve() {
    block_signals_in_this_thread();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return job.has_value() || is_ending; });
      if (!job) return;
      lock.unlock();
      job->room ? make(*job->room) : write(*job);  // other threads do not touch a job until `job` is empty again
      lock.lock();
      if (!job->room) result = std::move(job->saved);
      job.reset();
      changed.notify_all();
    }
  }

  Fs& fs;
  const std::filesystem::path run;
  Keeper keeper;                         // only the writing thread uses it
  std::vector<std::int64_t> best_steps;  // the last best steps that all had snapshots; only the writing thread uses them
  detail::HostMemory memory;             // the writing thread uses it while a job exists, otherwise the caller
  std::thread thread;                    // not joinable if the caller's thread saves

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::optional<Job> job;
  std::optional<Writer::Saved> result;
  bool is_ending = false;
};

Writer::Writer(Fs& fs, std::filesystem::path run, bool in_background, const std::filesystem::path& began_from)
    : impl_(std::make_unique<Impl>(fs, std::move(run), began_from)) {
  if (in_background) impl_->thread = std::thread([this] { impl_->serve(); });
}

Writer::~Writer() {
  if (!impl_->thread.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->is_ending = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

void Writer::make_room(const Content& content) {
  const detail::Room room = detail::room_for(content);
  if (room.device.is_cpu() || !impl_->thread.joinable()) return;
  wait();
  const std::lock_guard lock(impl_->mutex);
  impl_->job = Impl::Job{.image = {}, .retention = {}, .saved = {}, .room = room};
  impl_->changed.notify_all();
}

void Writer::begin(const Content& content, Keeper::Retention retention) {
  const std::int64_t begin_ns = steady_nanoseconds();
  wait();
  Impl::Job job{.image = {}, .retention = std::move(retention), .saved = {}, .room = {}};
  job.saved.step = content.step;
  const bool in_background = impl_->thread.joinable();
  attempt(job.saved, impl_->run,
          [&] { job.image = in_background ? detail::image_in(impl_->memory, content) : detail::image_of(content); });
  const bool failed = job.saved.error.has_value();
  if (!failed && !in_background) impl_->write(job);
  job.saved.blocked_ms = milliseconds_since(begin_ns);
  const std::lock_guard lock(impl_->mutex);
  if (failed || !in_background) {
    impl_->result = std::move(job.saved);
    return;
  }
  static const telemetry::Counter taken("async_snapshot");
  taken.add(1);
  impl_->result.reset();
  impl_->job = std::move(job);
  impl_->changed.notify_all();
}

void Writer::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return !impl_->job; });
}

bool Writer::busy() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->job.has_value() && !impl_->job->room;
}

std::optional<Writer::Saved> Writer::take() {
  const std::lock_guard lock(impl_->mutex);
  return std::exchange(impl_->result, std::nullopt);
}

}  // namespace millrace::snapshot
