// Which convolutions of a run are computed in fp32 because this machine's library is not right in bf16 there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"
#include "millrace/train/assembly/kept_trials.h"

namespace millrace {

struct ConvolutionChoice {
  std::vector<device::FoundFault> faults;
  std::int64_t shapes = 0;  // of the step; 0 = it has no convolutions
  std::string reason;       // with the trial's outcome, for plans
  bool operator==(const ConvolutionChoice&) const = default;
  [[nodiscard]] Json to_json() const;
  // What a plan says and a snapshot keeps: "bf16", or which pass of which shape is computed in fp32.
  [[nodiscard]] std::string value() const;
};
// Where a snapshot's report has to_json(), if there are faults.
inline constexpr const char* kConvolutionsInReport = "convolutions";
// Of to_json(), or of a cache that may hold anything: nullopt.
[[nodiscard]] std::optional<ConvolutionChoice> convolution_choice_in(const Json& json);

// Takes what `kept` has under `trial`; else the convolutions of `step`, which makes one training step in fp32 without a trace,
// are tried in a process of their own (device/convolution_trial.h). A trial that came to all its verdicts is kept. `before`: the
// value() of the run that goes on, "" = a new one: what was in fp32 stays in fp32, since another format would change bits.
[[nodiscard]] ConvolutionChoice choose_convolutions(const std::function<void()>& step, KeptTrials& kept, const std::string& trial,
                                                    const std::string& before = {});

}  // namespace millrace
