// Kernels of devices other than the CPU. Their loops and launches are the device's plugin's (device/cuda/*.cu), their arithmetic
// is headers of this folder, which the tests run on the CPU. Where a device has no table LibTorch's operations do the work.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

// Plain structs alone cross to the plugin. Whatever is launched goes to the current stream of device `index`.
struct DeviceTable {
  // Of tensors of any type; `keep.first` is not looked at, each stretch has its own.
  void (*dropout)(const detail::DropoutArgs&, const detail::DropoutRun* stretches, std::size_t count, c10::DeviceIndex index);
};

// Null where there is none.
[[nodiscard]] const DeviceTable* device_table(c10::DeviceType type) noexcept;
// Of the one kind of device besides the CPU that a process uses; null takes it away. The table stays where it is.
void set_device_table(c10::DeviceType type, const DeviceTable* table) noexcept;

}  // namespace millrace::kernels
