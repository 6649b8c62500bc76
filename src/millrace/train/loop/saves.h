// A run's saves: the writer beside the training, what it costs, and what happens when a snapshot can't be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/snapshot/writer.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {

// Used by the loop's thread. All ranks make the same calls; save() and take_finished() are collective.
class Saves {
 public:
  Saves(const SnapshotConfig& config, const SaveDestination& place, Reporter& reporter, Agreement& agreement);

  // By the config, or because it is `wanted`: at the end of an epoch, of the best.
  [[nodiscard]] bool is_due(std::int64_t step, std::int64_t asked_at, bool wanted) const;
  [[nodiscard]] bool holds(std::int64_t step) const noexcept { return saved_step_ == step; }  // saved, or being saved
  void forget() noexcept { saved_step_ = -1; }                                                // what was saved is out of date
  void restored(std::int64_t step) noexcept { saved_step_ = step; }

  // Before the first step of a run whose state is on a device; a save will then find room. Collective, as save() is.
  void make_room(const std::function<snapshot::Content()>& content);

  enum class Failure : std::uint8_t { warn, as_configured, end };
  // Starts a save of `content()`, which all ranks call when its turn has come and rank 0's of which is saved; `last`: waits for
  // it, and throws when it fails. Returns false when this step is saved already.
  bool save(std::int64_t step, const std::function<snapshot::Content()>& content, std::vector<std::int64_t> best, bool last);
  // Of a save that ended since. A snapshot that could not be written is a warning, since the previous one is still there and the
  // next save may find room again; unless `on_failure` or snapshot.on_error says otherwise: then SnapshotError, on every rank.
  // Returns whether some rank asks all to stop, which travels with it.
  bool take_finished(std::int64_t step, Failure on_failure = Failure::as_configured, bool asks_to_stop = false);
  // What a crash may cost is bounded: a save that takes longer than snapshot.max_lag steps is waited for. Nanoseconds waited.
  std::int64_t bound_lag(std::int64_t step);
  // "the last good snapshot is PATH; ", or "" when there is none: the newest whose last validation gave the metric `loss` as a
  // number. Where it is not the newest of all, that is said.
  [[nodiscard]] std::string last_good(const std::string& loss);
  [[nodiscard]] std::string last();  // "the last snapshot is PATH; ", or "" when there is none
  [[nodiscard]] Json results(double step_seconds) const;

 private:
  void log(const snapshot::Saved& saved);
  void hold_folder();

  const SnapshotConfig& config_;
  SaveDestination place_;
  Reporter& reporter_;
  Agreement& agreement_;
  std::unique_ptr<snapshot::Writer> writer_;  // null when this rank writes nothing
  std::int64_t saved_step_ = -1;
  std::int64_t done_ = 0, failed_ = 0;
  double blocked_ms_ = 0, write_ms_ = 0, lag_ms_ = 0;  // waited for the copy, written, waited by snapshot.max_lag
};

}  // namespace millrace
