// The table of the plugin's kernels for its devices.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "millrace/device/cuda/circular_pad.h"
#include "millrace/device/cuda/column_sums.h"
#include "millrace/device/cuda/cross_entropy.h"
#include "millrace/device/cuda/decoder.h"
#include "millrace/device/cuda/elementwise.h"
#include "millrace/device/cuda/group_norm.h"
#include "millrace/device/cuda/lerp.h"
#include "millrace/device/cuda/norm.h"
#include "millrace/device/cuda/rms_norm.h"
#include "millrace/device/cuda/soft_pool.h"
#include "millrace/kernels/device_table.h"

namespace millrace::device {
namespace {

using Site = kernels::DeviceTable::Site;

// Calls launch(stream) with the current stream of the device.
template <class Launch>
void on_device(c10::DeviceIndex index, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(index);
  C10_CUDA_CHECK(launch(c10::cuda::getCurrentCUDAStream(index).stream()));
}

void dropout(const kernels::detail::DropoutArgs& args, Site recorded, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_dropout(args, recorded, stream); });
}

void gelu(const kernels::detail::GeluArgs& args, Site recorded, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_gelu(args, recorded, stream); });
}

void norm_forward(const kernels::detail::NormForward& args, std::int64_t rows, Site recorded, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_norm_forward(args, rows, recorded, stream); });
}

void norm_backward(const kernels::detail::NormBackward& args, std::int64_t rows, std::int64_t blocks, Site recorded,
                   float* partial, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_norm_backward(args, rows, blocks, recorded, partial, stream); });
}

void cross_entropy_forward(const kernels::detail::CrossEntropy& args, std::int64_t rows, float* losses, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_cross_entropy_forward(args, rows, losses, stream); });
}

void cross_entropy_backward(const kernels::detail::CrossEntropy& args, std::int64_t rows, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_cross_entropy_backward(args, rows, stream); });
}

void pointwise(kernels::Pointwise function, const kernels::detail::PointwiseArgs& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_pointwise(function, args, stream); });
}

void rms_rows(const kernels::DeviceRms& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_rms_rows(args, stream); });
}

void swiglu(const kernels::DeviceSwiglu& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_swiglu(args, stream); });
}

void turn(const kernels::DeviceTurn& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_turn(args, stream); });
}

void rms_norm(const kernels::detail::RmsNorm& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_rms_norm(args, stream); });
}

void group_norm(const kernels::DeviceGroupNorm& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_group_norm(args, stream); });
}

void soft_pool(const kernels::detail::SoftPool& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_soft_pool(args, stream); });
}

void circular_pad(const kernels::CircularPad& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_circular_pad(args, stream); });
}

void column_sums(const void* matrix, kernels::detail::Type type, std::int64_t rows, std::int64_t columns, std::int64_t blocks,
                 float* parts, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_column_sums(matrix, type, rows, columns, blocks, parts, stream); });
}

void lerp(const kernels::detail::Lerp& args, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_lerp(args, stream); });
}

void write(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index) {
  on_device(index, [&](cudaStream_t stream) { return launch_write(to_device, from, bytes, stream); });
}

}  // namespace
}  // namespace millrace::device

extern "C" __attribute__((visibility("default"))) const millrace::kernels::DeviceTable* millrace_cuda_kernels() {
  static const millrace::kernels::DeviceTable table{.dropout = &millrace::device::dropout,
                                                    .gelu = &millrace::device::gelu,
                                                    .norm_forward = &millrace::device::norm_forward,
                                                    .norm_backward = &millrace::device::norm_backward,
                                                    .cross_entropy_forward = &millrace::device::cross_entropy_forward,
                                                    .cross_entropy_backward = &millrace::device::cross_entropy_backward,
                                                    .pointwise = &millrace::device::pointwise,
                                                    .rms_rows = &millrace::device::rms_rows,
                                                    .swiglu = &millrace::device::swiglu,
                                                    .turn = &millrace::device::turn,
                                                    .rms_norm = &millrace::device::rms_norm,
                                                    .group_norm = &millrace::device::group_norm,
                                                    .soft_pool = &millrace::device::soft_pool,
                                                    .circular_pad = &millrace::device::circular_pad,
                                                    .column_sums = &millrace::device::column_sums,
                                                    .lerp = &millrace::device::lerp,
                                                    .write = &millrace::device::write};
  return &table;
}
