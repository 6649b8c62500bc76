// Records some steps of a run: the times of LibTorch's operations and our kernels, within the spans of the loop.
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

// Belongs to the loop's thread. Records with Kineto, LibTorch's own profiler: one recording at a time in a process. It changes
// nothing that a step computes, and an error in it is a warning and never ends a run.
//
// In the trace: a span "ProfilerStep#12" for a step, as TensorBoard's profiler needs it; in it the timeline's spans by their
// names ("data_wait", "prepare", "forward", "backward", "optimizer", "log"), and the operations, including those of autograd's
// threads. Between steps "validate" and "snapshot"; a validation is recorded only as a span.
class StepProfiler final : telemetry::SpanWatch {
 public:
  // `place` and `reporter` outlive it. Without a folder in `place` only the table is made.
  StepProfiler(const ProfileConfig& config, c10::Device device, const SaveDestination& place, Reporter& reporter);
  ~StepProfiler() override;  // an unfinished recording is dropped
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void begin_step(std::int64_t step);  // 1-based
  // Called when the step's log line is done. `counts`: the step was not undone. After the last step the table and trace are
  // written and reported.
  void end_step(bool counts);
  // Called when the run ends: writes the steps recorded so far, and says that they are fewer than requested.
  void end() noexcept;
  [[nodiscard]] bool is_done() const noexcept { return state_ == State::done; }

 private:
  enum class State : std::uint8_t { waiting, recording, done };
  struct Open {
    std::unique_ptr<at::RecordFunction> span;
    std::unique_ptr<at::DisableRecordFunctionGuard> silence;  // destroyed first
  };
  void begins(telemetry::Phase phase) noexcept override;
  void ends() noexcept override;
  void open(const std::string& name);
  void close(std::size_t depth);
  void wait_for_device() const;
  void start();
  [[nodiscard]] std::string stop();  // returns the trace
  void finish();
  [[nodiscard]] std::string write(const std::string& trace);

  const ProfileConfig config_;
  const c10::Device device_;
  const SaveDestination& place_;
  Reporter& reporter_;
  State state_ = State::waiting;
  std::int64_t seen_ = 0;      // steps of this start
  std::int64_t recorded_ = 0;  // complete steps
  std::int64_t step_ = 0, first_ = 0, last_ = 0;
  std::vector<Open> open_;
};

}  // namespace millrace
