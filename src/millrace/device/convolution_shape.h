// The shape of a convolution in a form that can be stored. Trials of convolutions and the guard use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/device/faults.h"

namespace millrace::device {

// A ConvolutionCall without the number format and the memory layout of its operands.
struct ConvolutionShape {
  bool transposed = false;
  std::vector<std::int64_t> input, weight, stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool operator==(const ConvolutionShape&) const = default;
};
[[nodiscard]] ConvolutionShape shape_of(const ConvolutionCall& call);
// True if shape and call are equal except for the number of samples. This number does not matter, because a run that lacks
// memory makes its step with fewer samples.
[[nodiscard]] bool is_alike(const ConvolutionShape& shape, const ConvolutionCall& call);
// Example: "[2, 8, 12, 64, 4] x [16, 8, 3, 3, 3], stride [2, 2, 2], padding [1, 1, 1]".
[[nodiscard]] std::string to_text(const ConvolutionShape& shape);
[[nodiscard]] Json to_json(const ConvolutionShape& shape);
[[nodiscard]] ConvolutionShape convolution_shape_in(const Json& json);  // throws Json's exceptions

// A pass of a convolution for which a trial (convolution_trial.h) found wrong results in bf16 on this machine.
struct FoundFault {
  ConvolutionShape shape;
  Pass pass = Pass::forward;
  std::string what;  // the effect, such as "never ended"
  bool operator==(const FoundFault&) const = default;
};
[[nodiscard]] std::string_view name_of(Pass pass) noexcept;  // "output", "input gradient", "weight gradient"
[[nodiscard]] Json to_json(const FoundFault& fault);
[[nodiscard]] FoundFault found_fault_in(const Json& json);  // throws Json's exceptions and std::exception

}  // namespace millrace::device
