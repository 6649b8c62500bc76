// Seeds the generators of LibTorch's own random operations.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace::kernels {

// After this call the device's default generator produces the numbers of this seed. Only the host works; the call waits for no
// device.
void seed_default_generator(c10::Device device, std::uint64_t seed);

}  // namespace millrace::kernels
