// Kernels of devices other than the CPU. The loops and launches of the kernels are in the device's plugin (device/cuda/*.cu).
// The arithmetic of the kernels is in headers of this folder, which the tests run on the CPU. A device without a table uses
// LibTorch's operations.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>

#include "millrace/kernels/circular_lane.h"
#include "millrace/kernels/decoder_lane.h"
#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/group_norm_lane.h"
#include "millrace/kernels/lerp_lane.h"

namespace millrace::kernels {

// One part of the channels in circular_pad(). Forward: copies the plain volume into the padded volume. Backward: adds the
// gradient of the padded volume to the gradient of the plain volume.
struct CircularPad {
  const void* in;
  void* out;
  detail::Type type;
  detail::PaddedVolume volume;
  bool backward;
};

enum class Pointwise : std::uint8_t { smooth_leaky, quick_gelu };

// The plugin gets only plain structs. Launches go to the current stream of device `index`. Tensors are contiguous and have one
// of the types of detail::Type. `recorded` points, in the device's memory, to the site's key and to the number of the tensor's
// first element; the kernel of a recorded step reads both when it runs. If `recorded` is null, the kernel uses the values of
// `keep`.
struct DeviceTable {
  using Site = const detail::RecordedSite*;
  // Handles a whole tensor, or one run of a tensor (detail/dropout_layout.h).
  void (*dropout)(const detail::DropoutArgs&, Site recorded, c10::DeviceIndex index);
  void (*gelu)(const detail::GeluArgs&, Site recorded, c10::DeviceIndex index);
  // For rows whose width passes norm_width_fits(). The number of a row's first element in the site's stream must be a multiple of
  // 128.
  void (*norm_forward)(const detail::NormForward&, std::int64_t rows, Site recorded, c10::DeviceIndex index);
  // `partial` (2, blocks, width), f32: each block's summand of the gradients of weight and bias. The kernel writes all of it.
  void (*norm_backward)(const detail::NormBackward&, std::int64_t rows, std::int64_t blocks, Site recorded, float* partial,
                        c10::DeviceIndex index);
  // `losses`: the loss of each row; 0 for a row that does not count, NaN for a target that is not a class.
  void (*cross_entropy_forward)(const detail::CrossEntropy&, std::int64_t rows, float* losses, c10::DeviceIndex index);
  void (*cross_entropy_backward)(const detail::CrossEntropy&, std::int64_t rows, c10::DeviceIndex index);
  // For tensors whose elements fill their memory without gaps, in any order of the dimensions.
  void (*pointwise)(Pointwise function, const detail::PointwiseArgs&, c10::DeviceIndex index);
  void (*rms_rows)(const DeviceRms&, c10::DeviceIndex index);
  void (*swiglu)(const DeviceSwiglu&, c10::DeviceIndex index);
  void (*turn)(const DeviceTurn&, c10::DeviceIndex index);
  void (*rms_norm)(const detail::RmsNorm&, c10::DeviceIndex index);
  void (*group_norm)(const DeviceGroupNorm&, c10::DeviceIndex index);
  // For fewer than 2^31 elements and fewer than 2^31 results.
  void (*soft_pool)(const detail::SoftPool&, c10::DeviceIndex index);
  void (*circular_pad)(const CircularPad&, c10::DeviceIndex index);
  // Sums the columns of a matrix (rows, columns) into parts (blocks, columns), f32. The kernel writes all of `parts`.
  void (*column_sums)(const void* matrix, detail::Type type, std::int64_t rows, std::int64_t columns, std::int64_t blocks,
                      float* parts, c10::DeviceIndex index);
  // For 1 to Lerp::kMost pairs of tensors, of at least one element each, that are dense in the same order.
  void (*lerp)(const detail::Lerp&, c10::DeviceIndex index);
  // Writes bytes of the host to the device's memory, in order with the work of the current stream. The host does not wait, and
  // `from` may change as soon as this returns.
  void (*write)(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index);
};

[[nodiscard]] constexpr bool norm_width_fits(std::int64_t width) noexcept {
  return width > 0 && width % 128 == 0 && width <= 1024;
}

// The table of this kind of device; null if it has no table.
[[nodiscard]] const DeviceTable* device_table(c10::DeviceType type) noexcept;
// Sets the table of `type`, which must be the only kind of device that the process uses besides the CPU; null removes the table.
// The table must outlive its use.
void set_device_table(c10::DeviceType type, const DeviceTable* table) noexcept;

}  // namespace millrace::kernels
