// Kernels of devices other than the CPU. Their loops and launches are in the device's plugin (device/cuda/*.cu), their arithmetic
// in headers of this folder, which the tests run on the CPU. Without a table for a device LibTorch's operations do the work.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>

#include "millrace/kernels/detail/table.h"

namespace millrace::kernels {

// Only plain structs cross to the plugin. Launches go to the current stream of device `index`.
struct DeviceTable {
  // For tensors of any type; `keep.first` is not used, since each run has its own.
  void (*dropout)(const detail::DropoutArgs&, const detail::DropoutRun* stretches, std::size_t count, c10::DeviceIndex index);
  // The same for one run whose key and first number are read from the device's memory when the kernel runs: a recorded step finds
  // those of its own batch there. Neither `keep.key` nor `keep.first` is used.
  void (*recorded_dropout)(const detail::DropoutArgs&, const detail::RecordedSite* on_device, c10::DeviceIndex index);
  // Loads what recorded_dropout launches: a device may refuse to load code while it records.
  void (*load)(c10::DeviceIndex index);
  // Writes bytes of the host to the device's memory, in order with the work of the current stream. The host does not wait, and
  // `from` may change as soon as this returns.
  void (*write)(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index);
};

// The table of this kind of device; null if there is no table.
[[nodiscard]] const DeviceTable* device_table(c10::DeviceType type) noexcept;
// Sets the table of the one kind of device besides the CPU that a process uses; null removes it. The table must outlive its use.
void set_device_table(c10::DeviceType type, const DeviceTable* table) noexcept;

}  // namespace millrace::kernels
