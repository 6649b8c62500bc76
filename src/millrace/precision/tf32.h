// Chooses whether a GPU computes fp32 matrix products and convolutions in TF32, which has fp32's range but rounds factors to 10
// bits of mantissa.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>

#include "millrace/base/chosen.h"

namespace millrace::precision {

// `wish` is the setting device.tf32. nullopt = auto: TF32 is on if the step computes in 16 bits, which round more than TF32
// does. TF32 is off if the step computes in fp32, so that products and convolutions are exact. `format`: the step's format
// (nullopt = fp32). `capability`: the GPU's. The reason is "" for auto on a device without TF32.
[[nodiscard]] Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::pair<int, int> capability,
                                       std::optional<c10::ScalarType> format);
// Like the choose_tf32() above, with the capability of `device`, a device of this machine.
[[nodiscard]] Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::optional<c10::ScalarType> format);

// Text that the plan adds to a number format on a GPU if "fp32" alone would be ambiguous; "" otherwise.
[[nodiscard]] std::string tf32_remark(const Chosen<bool>& choice, c10::Device device, std::optional<c10::ScalarType> format);

// Applies the choice to products and convolutions in the whole process; no effect on a CPU. Call it before the first step.
void use_tf32(const Chosen<bool>& choice, c10::Device device);

}  // namespace millrace::precision
