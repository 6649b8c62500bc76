// The table of the plugin's kernels for its devices.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "millrace/device/cuda/dropout.h"
#include "millrace/kernels/device_table.h"

namespace millrace::device {
namespace {

void dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::DropoutRun* stretches, std::size_t count,
             c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard guard(index);
  C10_CUDA_CHECK(launch_dropout(args, stretches, count, c10::cuda::getCurrentCUDAStream(index).stream()));
}

void recorded_dropout(const kernels::detail::DropoutArgs& args, const kernels::detail::RecordedSite* on_device,
                      c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard guard(index);
  C10_CUDA_CHECK(launch_recorded_dropout(args, on_device, c10::cuda::getCurrentCUDAStream(index).stream()));
}

void load(c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard guard(index);
  C10_CUDA_CHECK(load_recorded_dropout());
}

void write(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index) {
  const c10::cuda::CUDAGuard guard(index);
  C10_CUDA_CHECK(launch_write(to_device, from, bytes, c10::cuda::getCurrentCUDAStream(index).stream()));
}

}  // namespace
}  // namespace millrace::device

extern "C" __attribute__((visibility("default"))) const millrace::kernels::DeviceTable* millrace_cuda_kernels() {
  static const millrace::kernels::DeviceTable table{.dropout = &millrace::device::dropout,
                                                    .recorded_dropout = &millrace::device::recorded_dropout,
                                                    .load = &millrace::device::load,
                                                    .write = &millrace::device::write};
  return &table;
}
