// Records some steps of a run: the times of LibTorch's operations and of Millrace's kernels, inside the spans of the loop's
// phases.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/telemetry/span_watch.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/report/reporter.h"
#include "millrace/train/run_folder/run_folder.h"

namespace millrace {

// Belongs to the loop's thread. Records with Kineto, LibTorch's own profiler, which allows one recording at a time in a process.
// Recording changes no result of a step. An error of the profiler becomes a warning and never ends the run.
//
// The trace has a span "ProfilerStep#12" for each step, as TensorBoard's profiler needs it. The span contains the phases of the
// loop ("data_wait", "prepare", "forward", "backward", "optimizer", "log") and the operations, including those on autograd's
// threads. Between two steps there may be the spans "validate" and "snapshot"; the operations of a validation are not recorded.
class StepProfiler final : telemetry::SpanWatch {
 public:
  // `place` and `reporter` must outlive this object. If `place` has no folder, only the table is made.
  StepProfiler(const ProfileConfig& config, c10::Device device, const SaveDestination& place, Reporter& reporter);
  ~StepProfiler() override;  // an unfinished recording is discarded
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void begin_step(std::int64_t step);  // `step` counts from 1
  // Called when the step's log line is written. `counts`: false if the step was undone. After the last step to record, the table
  // and the trace are written and reported.
  void end_step(bool counts);
  // Called when the run ends. If some steps to record are missing, writes the steps recorded so far and says that they are fewer
  // than requested.
  void end() noexcept;
  [[nodiscard]] bool is_done() const noexcept { return state_ == State::done; }

 private:
  enum class State : std::uint8_t { waiting, recording, done };
  struct Open {
    std::unique_ptr<at::RecordFunction> span;
    std::unique_ptr<at::DisableRecordFunctionGuard> silence;  // destroyed before the other members
  };
  void begins(telemetry::Phase phase) noexcept override;
  void ends() noexcept override;
  void open(const std::string& name);
  void close(std::size_t depth);
  void wait_for_device() const;
  void start();
  [[nodiscard]] std::string stop();  // ends the recording and returns the trace
  void finish();
  [[nodiscard]] std::string write(const std::string& trace);

  const ProfileConfig config_;
  const c10::Device device_;
  const SaveDestination& place_;
  Reporter& reporter_;
  State state_ = State::waiting;
  std::int64_t seen_ = 0;      // steps since this process started
  std::int64_t recorded_ = 0;  // steps recorded completely
  std::int64_t step_ = 0, first_ = 0, last_ = 0;
  std::vector<Open> open_;
};

}  // namespace millrace
