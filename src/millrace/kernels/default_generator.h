// Seeds the generators of LibTorch's own random operations.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace millrace::kernels {

// Seeds the device's default generator. Only the host works, and it does not wait for the device.
void seed_default_generator(c10::Device device, std::uint64_t seed);

}  // namespace millrace::kernels
