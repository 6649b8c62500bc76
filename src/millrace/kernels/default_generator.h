// What LibTorch's own random operations draw from.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace::kernels {

// From here on the default generator of the device gives the numbers of this seed. The host's work alone: no device waits for it.
void seed_default_generator(c10::Device device, std::uint64_t seed);

}  // namespace millrace::kernels
