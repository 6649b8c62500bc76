// Records some steps of a run: what LibTorch's operations and our kernels took, within the spans of the loop.
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

// Belongs to the loop's thread. Records with Kineto, LibTorch's own profiler: one recording at a time in a process. Nothing of it
// changes what a step computes, and nothing that goes wrong with it ends a run: it is a warning.
//
// In the trace: a span "ProfilerStep#12" for a step, as TensorBoard's profiler wants it, in it the spans of the timeline by their
// names ("data_wait", "prepare", "forward", "backward", "optimizer", "log"), and the operations, those of autograd's threads too.
// Between steps "validate" and "snapshot"; of what a validation computes only that it took so long.
class StepProfiler final : telemetry::SpanWatch {
 public:
  // `place` and `reporter` outlive it. A place without a folder: the table alone.
  StepProfiler(const ProfileConfig& config, c10::Device device, const SaveDestination& place, Reporter& reporter);
  ~StepProfiler() override;  // what is still being recorded is dropped
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void begin_step(std::int64_t step);  // 1-based
  // With its log line done. `counts`: it was a step after all. After the last one: table and trace are written and told.
  void end_step(bool counts);
  // The run ends here: what there is is written, and said to be less than was asked for.
  void end() noexcept;
  [[nodiscard]] bool is_done() const noexcept { return state_ == State::done; }

 private:
  enum class State : std::uint8_t { waiting, recording, done };
  struct Open {
    std::unique_ptr<at::RecordFunction> span;
    std::unique_ptr<at::DisableRecordFunctionGuard> silence;  // goes first
  };
  void begins(telemetry::Phase phase) noexcept override;
  void ends() noexcept override;
  void open(const std::string& name);
  void close(std::size_t depth);
  void wait_for_device() const;
  void start();
  [[nodiscard]] std::string stop();  // the trace
  void finish();
  [[nodiscard]] std::string write(const std::string& trace);

  const ProfileConfig config_;
  const c10::Device device_;
  const SaveDestination& place_;
  Reporter& reporter_;
  State state_ = State::waiting;
  std::int64_t seen_ = 0;      // steps of this start
  std::int64_t recorded_ = 0;  // whole ones
  std::int64_t step_ = 0, first_ = 0, last_ = 0;
  std::vector<Open> open_;
};

}  // namespace millrace
