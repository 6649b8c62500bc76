// A training step as graphs of its device: recorded once for each shape of batch, then launched as a few pieces. The host's part
// of a step is then some microseconds, however many kernels the step has.
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

// A step is launched as it comes until its shape is known, then recorded, compared with the step itself (losses and norms of the
// gradients), and timed beside it; the faster of the two is kept. A step that can't be recorded is launched as it comes for the
// rest of the run, and choice() says why.
//
// A replayed step computes what the step itself computes, to the bit where the device's kernels are deterministic. Changing from
// step to step: the batch, the learning rate, the loss scale, the keys and rows of our own dropout, the seed of LibTorch's
// generator. Everything else that the host puts into a step is the same in each replay; so a loss that reads StepContext::step is
// not recorded, and one that reads StepContext::epoch is recorded anew in each epoch of enough steps.
//
// Belongs to a stepper, on the loop's thread.
class StepGraph {
 public:
  // The parts of a step, done by the stepper.
  struct Parts {
    std::function<StepResult(const Batch&, MicroPosition, StepLaunches&)> passes;  // forward and backward of a micro-batch
    std::function<void(StepLaunches&)> update;
    std::function<void()> distrust_counters;  // of buffers: they do not show what replayed passes have changed
    std::function<void()> drop;               // takes the passes of the step back
    std::vector<ObjectiveStep>& objectives;
  };

  // From here on the stepper's steps are launched as graphs where the device can record them. Does nothing for
  // steps that a graph can't hold, and returns why: on a CPU, with several ranks, with offloading. Else "".
  static std::string use(Stepper& stepper);
  [[nodiscard]] static const StepGraph* of(const Stepper& stepper) noexcept;  // null: steps are launched as they come

  StepGraph(at::Device device, std::uint64_t seed, telemetry::Timeline& timeline, StepGraph::Parts parts);
  ~StepGraph();

  void begin(std::int64_t step);  // 0-based
  // The passes of the step's next micro-batch by its graph; nullopt: launch them as they come.
  [[nodiscard]] std::optional<StepResult> passes(const Batch& batch, MicroPosition in_step);
  void update();  // ends the step, by its graph or as it comes
  // What was recorded no longer holds: the number format or what is recomputed has changed, or memory is needed.
  void forget();

  // Whether steps are launched as graphs, and why; nullopt until it is known. A reason not to may pass with the epochs.
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
  std::list<Recorded> recorded_;  // by shape, in the order in which they came
  Recorded* now_ = nullptr;       // the graph of the step under way; null: it is launched as it comes
  Recorded* timed_ = nullptr;     // the first shape that came twice
  bool records_ = false;          // the step under way is being recorded
  std::int64_t step_ = 0;
  std::size_t index_ = 0;                          // of the step's latest micro-batch, counted from 1
  device::DeviceClock* clock_ = nullptr;           // of the step under way; null: it is not timed
  device::DeviceClock eager_clock_, graph_clock_;  // two marks a step
  std::optional<Chosen<bool>> choice_;
  bool is_final_ = false;  // the choice; false: it is open
};

}  // namespace millrace
