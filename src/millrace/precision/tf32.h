// Whether a GPU computes fp32 matrix products and convolutions in TF32: fp32's range, factors rounded to 10 bits of mantissa.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>

#include "millrace/base/chosen.h"

namespace millrace::precision {

// `wish`: device.tf32, nullopt = auto: on where the step computes in 16 bits, which round more than TF32 does; off where it
// computes in fp32, whose products and convolutions are then exact, both. `format`: what the step computes in (nullopt = fp32);
// `capability`: of the GPU. No reason is given where it was left to us and the device has no TF32 to choose.
[[nodiscard]] Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::pair<int, int> capability,
                                       std::optional<c10::ScalarType> format);
// The same for a device of this machine.
[[nodiscard]] Chosen<bool> choose_tf32(std::optional<bool> wish, c10::Device device, std::optional<c10::ScalarType> format);

// What the plan adds to a number format on a GPU, where "fp32" alone could mean two things; "" where it means one.
[[nodiscard]] std::string tf32_remark(const Chosen<bool>& choice, c10::Device device, std::optional<c10::ScalarType> format);

// For products and convolutions, of the whole process; nothing on a CPU. Before the first step.
void use_tf32(const Chosen<bool>& choice, c10::Device device);

}  // namespace millrace::precision
