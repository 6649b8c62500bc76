// The CUDA plugin's own kernels with the same arithmetic, lane by lane. STANDIN_OWN_KERNELS=none is a plugin that was built
// without nvcc: LibTorch's operations do their work.
#include "millrace/kernels/device_table.h"

#include <c10/core/DeviceGuard.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "device_memory.h"
#include "millrace/kernels/dropout_lane.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

using kernels::detail::DropoutArgs;
using kernels::detail::DropoutOf;
using kernels::detail::DropoutRun;
using kernels::detail::RecordedSite;
using kernels::detail::Type;

const std::string kDropout = "millrace::dropout";

template <class T>
T* touched(const void* tensor, const DropoutRun& stretch, bool written, int device) {
  auto* const memory = reinterpret_cast<T*>(for_kernels(tensor));
  const auto* const begin = reinterpret_cast<const std::byte*>(memory + stretch.begin);
  if (stretch.count > 0) touch(device, begin, begin + static_cast<std::size_t>(stretch.count) * sizeof(T), written, kDropout);
  return memory;
}

template <class X, class Out>
void dropout_of(const DropoutArgs& args, const DropoutRun& stretch, int device) {
  const DropoutOf<X, Out> of{.x = touched<X>(args.x, stretch, false, device),
                             .residual = args.residual == nullptr ? nullptr : touched<Out>(args.residual, stretch, false, device),
                             .out = touched<Out>(args.out, stretch, true, device),
                             .keep = args.keep};
  const std::int64_t lanes = kernels::detail::lanes_of(stretch);
  for (std::int64_t lane = 0; lane < lanes; ++lane) of.lane(stretch, lane);
}

template <class X>
void dropout_to(const DropoutArgs& args, const DropoutRun& stretch, int device) {
  if (args.out_type == Type::f32) return dropout_of<X, float>(args, stretch, device);
  if (args.out_type == Type::bf16) return dropout_of<X, c10::BFloat16>(args, stretch, device);
  dropout_of<X, c10::Half>(args, stretch, device);
}

void run_dropout(const DropoutArgs& args, const DropoutRun& stretch, int device) {
  if (args.x_type == Type::f32) return dropout_to<float>(args, stretch, device);
  if (args.x_type == Type::bf16) return dropout_to<c10::BFloat16>(args, stretch, device);
  dropout_to<c10::Half>(args, stretch, device);
}

// Runs `kernel` now or, in a recording, at each replay; `memory` is what it reads and writes.
template <typename F>
void launch_kernel(const std::string& name, int device, const std::vector<const void*>& memory, F kernel) {
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  launch(device, name);
  if (computes_nothing()) return;
  Recorder* const open = recorder(device);
  if (open == nullptr) return kernel();
  for (const void* const address : memory) open->needs(address);
  open->add([kernel, device] {
    in_order(device);
    kernel();
  });
}

void dropout(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, c10::DeviceIndex index) {
  const auto kernel = [args, index, all = std::vector(stretches, stretches + count)] {
    for (const DropoutRun& stretch : all) run_dropout(args, stretch, index);
  };
  launch_kernel(kDropout, index, {args.x, args.residual, args.out}, kernel);
}

void recorded_dropout(const DropoutArgs& args, const RecordedSite* on_device, c10::DeviceIndex index) {
  const auto kernel = [args, on_device, index] {
    const std::byte* const memory = for_kernels(on_device);
    touch(index, memory, memory + sizeof(RecordedSite), false, kDropout);
    RecordedSite site;
    std::memcpy(&site, memory, sizeof site);
    DropoutArgs now = args;
    now.keep.key = site.key;
    run_dropout(now, {.begin = 0, .count = args.count, .first = site.first}, index);
  };
  launch_kernel(kDropout, index, {args.x, args.residual, args.out, on_device}, kernel);
}

void write(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index) {
  refuse_in_recording("bytes that the host writes: " + std::to_string(bytes));
  const auto kernel = [=] {
    std::byte* const memory = for_kernels(to_device);
    touch(index, memory, memory + bytes, true, "millrace::write");
    std::memcpy(memory, from, bytes);
  };
  launch_kernel("millrace::write", index, {to_device}, kernel);
}

}  // namespace
}  // namespace millrace::standin

extern "C" __attribute__((visibility("default"))) const millrace::kernels::DeviceTable* millrace_cuda_kernels() {
  static const millrace::kernels::DeviceTable table{.dropout = &millrace::standin::dropout,
                                                    .recorded_dropout = &millrace::standin::recorded_dropout,
                                                    .write = &millrace::standin::write};
  const char* const own = std::getenv("STANDIN_OWN_KERNELS");
  return own != nullptr && std::string_view(own) == "none" ? nullptr : &table;
}
