// Which convolutions of a run are computed in fp32 because this machine's library computes them wrongly in bf16.
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
  std::int64_t shapes = 0;  // shapes in the step; 0 = it has no convolutions
  std::string reason;       // includes the trial's outcome; for plans
  bool operator==(const ConvolutionChoice&) const = default;
  [[nodiscard]] Json to_json() const;
  // The value in plans and snapshots: "bf16", or which pass of which shape is computed in fp32.
  [[nodiscard]] std::string value() const;
};
// The key of to_json() in a snapshot's report, if there are faults.
inline constexpr const char* kConvolutionsInReport = "convolutions";
// Reads what to_json() wrote; `json` may come from a cache and hold anything: then nullopt.
[[nodiscard]] std::optional<ConvolutionChoice> convolution_choice_in(const Json& json);

// Takes the entry `trial` of `kept` if there is one; else runs `step`, which makes one training step in fp32 without a trace, and
// tests its convolutions in a separate process (device/convolution_trial.h). A trial that reached all its verdicts is kept.
// `before`: the value() of the run that is resumed, "" for a new one; its fp32 convolutions stay in fp32, since another format
// would change bits. `goes_on`: see device::try_convolutions().
[[nodiscard]] ConvolutionChoice choose_convolutions(const std::function<void()>& step, KeptTrials& kept, const std::string& trial,
                                                    const std::string& before = {}, const device::TrialGoesOn& goes_on = nullptr);

}  // namespace millrace
