// Records a training step as graphs of the device's launches, once for each shape of batch. Later steps launch the graphs. The
// host then needs only some microseconds a step, independent of the number of kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/chosen.h"
#include "millrace/device/device_clock.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/step/micro_position.h"
#include "millrace/train/step/step_launches.h"

namespace millrace {

class ObjectiveStep;
class Stepper;

// Decides for each step whether it is replayed from graphs or launched piece by piece, one operation at a time. The first steps
// of a shape are launched piece by piece. Then the step is recorded, and its replays are compared with the step launched piece
// by piece. First the losses and the norms of the gradients are compared, then the times; later steps use the faster way. A step
// that can't be recorded is launched piece by piece for the rest of the run, and choice() says why.
//
// A replayed step gives the same numbers as the step launched piece by piece, to the bit if the device's kernels are
// deterministic. These values may change from step to step: the batch, the learning rate, the loss scale, the keys and rows of
// Millrace's dropout, and the seed of LibTorch's generator. Every other value from the host is the same in each replay.
// Therefore a loss that reads StepContext::step is not recorded, and a loss that reads StepContext::epoch is recorded again in
// each epoch, if an epoch has enough steps.
//
// Part of a stepper; only the loop's thread uses it.
class StepGraph {
 public:
  // Functions of the stepper that carry out the parts of a step.
  struct Parts {
    std::function<StepResult(const Batch&, MicroPosition, StepLaunches&)> passes;  // forward and backward of a micro-batch
    std::function<void(StepLaunches&)> update;
    // Tells the stepper that buffers may have changed although their version counters did not, because passes were replayed.
    std::function<void()> distrust_counters;
    std::function<void()> drop;  // undoes the passes of the step
    std::vector<ObjectiveStep>& objectives;
  };

  // From here on the stepper's steps are recorded and replayed if the device can record them; returns "". If a graph can't hold
  // the stepper's steps (on a CPU, with several ranks, with offloading), does nothing and returns the reason.
  static std::string use(Stepper& stepper);
  [[nodiscard]] static const StepGraph* of(const Stepper& stepper) noexcept;  // null: all steps are launched piece by piece

  StepGraph(at::Device device, std::uint64_t seed, telemetry::Timeline& timeline, StepGraph::Parts parts);
  ~StepGraph();

  void begin(std::int64_t step);  // 0-based
  // Replays the passes of the step's next micro-batch; nullopt: the caller must launch them piece by piece.
  [[nodiscard]] std::optional<StepResult> passes(const Batch& batch, MicroPosition in_step);
  void update();  // ends the step, by replay or piece by piece
  // Drops all recordings. Must be called when the recordings are no longer valid, because the number format or the recomputed
  // blocks have changed, or when memory is needed.
  void forget();

  // True if steps are replayed, with the reason; nullopt until it is known. A reason against replay may disappear in a later
  // epoch.
  [[nodiscard]] const std::optional<Chosen<bool>>& choice() const noexcept { return choice_; }

 private:
  struct Part;
  struct Micro;
  struct Recorded;
  class Recorder;
  [[nodiscard]] Recorded* known(std::vector<std::int64_t> shape);
  [[nodiscard]] std::optional<StepResult> first(const Batch& batch, MicroPosition in_step);
  [[nodiscard]] std::optional<StepResult> next(const Batch& batch, MicroPosition in_step);
  [[nodiscard]] std::optional<StepResult> record_passes(const Batch& batch, MicroPosition in_step);
  void record_update();
  const StepResult& replay_passes(Micro& micro, const Batch& batch);
  [[nodiscard]] StepResult compared(Recorded& recorded, const Batch& batch);
  void launch_the_rest();
  void time_step(device::DeviceClock& clock);
  void settle_when_timed();
  void give_up(std::string reason);
  void wait(Recorded& recorded, std::uint64_t epoch, std::string reason);

  at::Device device_;
  std::uint64_t seed_;
  telemetry::Timeline& timeline_;
  StepGraph::Parts parts_;
  StepLaunches direct_;
  std::list<Recorded> recorded_;  // one for each shape, in the order in which the shapes came
  Recorded* now_ = nullptr;       // the recording of the present step; null: the step is launched piece by piece
  Recorded* timed_ = nullptr;     // the first shape that occurred twice; the steps of this shape are timed
  bool records_ = false;          // the present step is being recorded
  std::int64_t step_ = 0;
  std::size_t index_ = 0;                          // number of the step's latest micro-batch, from 1
  device::DeviceClock* clock_ = nullptr;           // the clock that times the present step; null: the step is not timed
  device::DeviceClock eager_clock_, graph_clock_;  // each step has two marks
  std::optional<Chosen<bool>> choice_;
  bool is_final_ = false;  // true: choice_ can't change any more
};

}  // namespace millrace
