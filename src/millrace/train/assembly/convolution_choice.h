// The convolutions that a bf16 run computes in fp32, because oneDNN computes them wrongly in bf16 on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"
#include "millrace/device/convolution_trial.h"
#include "millrace/train/assembly/kept_trials.h"

namespace millrace {

struct ConvolutionChoice {
  std::vector<device::FoundFault> faults;
  std::int64_t shapes = 0;  // number of different convolution shapes in the step; 0 = the step has no convolutions
  std::string reason;       // for the plan; includes the trial's outcome
  bool operator==(const ConvolutionChoice&) const = default;
  [[nodiscard]] Json to_json() const;
  // The value in plans and snapshots: "bf16", or a list of the passes and shapes that are computed in fp32.
  [[nodiscard]] std::string value() const;
};
// The key in a snapshot's report under which to_json() is stored, if there are faults.
inline constexpr const char* kConvolutionsInReport = "convolutions";
// Reads what to_json() wrote. `json` may come from a cache and hold anything; nullopt if it is not such a record.
[[nodiscard]] std::optional<ConvolutionChoice> convolution_choice_in(const Json& json);

// Returns the entry `trial` of `kept` if this entry exists. Otherwise calls `step`, which makes one training step in fp32
// without a trace, and tests the step's convolutions in a separate process (device/convolution_trial.h). The result is kept if
// the trial left no convolution untested. `before` is the value() of the run that is resumed, "" for a new run. Convolutions
// that were in fp32 in that run stay in fp32, because another format would change bits. `goes_on`: see
// device::try_convolutions().
[[nodiscard]] ConvolutionChoice choose_convolutions(const std::function<void()>& step, KeptTrials& kept, const std::string& trial,
                                                    const std::string& before = {}, const device::TrialGoesOn& goes_on = nullptr);

}  // namespace millrace
