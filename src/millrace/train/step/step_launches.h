// How the work of a training step reaches its device: as it comes, or into a recording (step_graph.h).
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

class SiteRecorder;  // core/random.h

// Numbers of the host on which a step was seen to depend.
struct HostReads {
  bool step = false, epoch = false;  // of StepContext
};

// Used by the loop's thread. This class launches everything as it comes.
class StepLaunches {
 public:
  using Work = std::function<void()>;
  using Seed = std::function<void(const Batch&)>;
  explicit StepLaunches(telemetry::Timeline& timeline) : timeline_(timeline) {}
  virtual ~StepLaunches() = default;
  StepLaunches(const StepLaunches&) = delete;
  StepLaunches& operator=(const StepLaunches&) = delete;

  // Seeds what LibTorch draws in the part that follows; `seed` depends on nothing but its argument.
  virtual void seed(const Batch& batch, const Seed& seed) { seed(batch); }
  virtual void run(telemetry::Phase phase, const Work& work);  // does a part of the step, counted as `phase`
  [[nodiscard]] virtual SiteRecorder* recorder() { return nullptr; }
  [[nodiscard]] virtual StepNumbers* numbers() { return nullptr; }
  [[nodiscard]] virtual HostReads* reads() { return nullptr; }

 protected:
  telemetry::Timeline& timeline_;
};

}  // namespace millrace
