// The snapshots of a run: the background writer, what saving costs, and what happens if a snapshot can't be written.
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

  // True if the config asks for a save at `step`. `asked_at`: the step of the caller's previous call. `wanted`: true if the
  // caller needs a save anyway, at the end of an epoch or for a new best.
  [[nodiscard]] bool is_due(std::int64_t step, std::int64_t asked_at, bool wanted) const;
  // True if the step is saved or is being saved.
  [[nodiscard]] bool holds(std::int64_t step) const noexcept { return saved_step_ == step; }
  void forget() noexcept { saved_step_ = -1; }  // called if the saved state of the step is out of date
  void restored(std::int64_t step) noexcept { saved_step_ = step; }

  // Called before the first step of a run that keeps its state on a device: reserves the host memory of a save. Collective, like
  // save().
  void make_room(const std::function<snapshot::Content()>& content);

  enum class Failure : std::uint8_t { warn, as_configured, end };
  // Starts a save of `content()`. All ranks call `content` during it, and rank 0's result is saved. `last`: waits for the end of
  // the save, and throws if it fails. Returns false if this step is already saved.
  bool save(std::int64_t step, const std::function<snapshot::Content()>& content, std::vector<std::int64_t> best, bool last);
  // Handles a save that ended since the last call. A snapshot that could not be written normally causes only a warning, because
  // the previous snapshot still exists and the next save may find room. If `on_failure` or snapshot.on_error asks for it, every
  // rank throws SnapshotError instead. `asks_to_stop`: this rank wants to stop. Returns true if any rank wants to stop; the ranks
  // exchange this in the same message.
  bool take_finished(std::int64_t step, Failure on_failure = Failure::as_configured, bool asks_to_stop = false);
  // If a save takes longer than snapshot.max_lag steps, waits for its end, so that a crash can't lose more steps. Returns the
  // nanoseconds waited.
  std::int64_t bound_lag(std::int64_t step);
  // Text for messages: "the last good snapshot is PATH; ". A snapshot is good if the metric `loss` was finite in the last
  // validation before the snapshot. The text mentions a newer snapshot if there is one. "" if there is no good snapshot.
  [[nodiscard]] std::string last_good(const std::string& loss);
  [[nodiscard]] std::string last();  // "the last snapshot is PATH; ", or "" if there is no snapshot
  [[nodiscard]] Json results(double step_seconds) const;

 private:
  void log(const snapshot::Writer::Saved& saved);
  void hold_folder();

  const SnapshotConfig& config_;
  SaveDestination place_;
  Reporter& reporter_;
  Agreement& agreement_;
  std::unique_ptr<snapshot::Writer> writer_;  // null if this rank writes no snapshots
  std::int64_t saved_step_ = -1;
  std::int64_t done_ = 0, failed_ = 0;
  // milliseconds: waiting for the copy, writing, waiting for snapshot.max_lag
  double blocked_ms_ = 0, write_ms_ = 0, lag_ms_ = 0;
};

}  // namespace millrace
