// How the work of a training step reaches its device: it is launched piece by piece, or recorded (step_graph.h).
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

class SiteRecorder;  // core/random.h

// Which numbers of StepContext a step has read on the host.
struct HostReads {
  bool step = false, epoch = false;
};

// Launches each piece of work at once; derived classes record it. Used by the loop's thread.
class StepLaunches {
 public:
  using Work = std::function<void()>;
  using Seed = std::function<void(const Batch&)>;
  explicit StepLaunches(telemetry::Timeline& timeline) : timeline_(timeline) {}
  virtual ~StepLaunches() = default;
  StepLaunches(const StepLaunches&) = delete;
  StepLaunches& operator=(const StepLaunches&) = delete;

  // Seeds the random numbers that LibTorch draws in the next part of the step. `seed` depends only on its argument.
  virtual void seed(const Batch& batch, const Seed& seed) { seed(batch); }
  virtual void run(telemetry::Phase phase, const Work& work);  // does a part of the step; its time counts as `phase`
  [[nodiscard]] virtual SiteRecorder* recorder() { return nullptr; }
  [[nodiscard]] virtual StepNumbers* numbers() { return nullptr; }
  [[nodiscard]] virtual HostReads* reads() { return nullptr; }

 protected:
  telemetry::Timeline& timeline_;
};

}  // namespace millrace
