// The CUDA plugin's own kernels with the same arithmetic, lane by lane. STANDIN_OWN_KERNELS=none is a plugin that was built
// without nvcc: LibTorch's operations do their work.
#include "millrace/kernels/device_table.h"

#include <c10/core/DeviceGuard.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdlib>
#include <string_view>

#include "device_memory.h"
#include "millrace/kernels/dropout_lane.h"
#include "streams.h"

namespace millrace::standin {
namespace {

using kernels::detail::DropoutArgs;
using kernels::detail::DropoutOf;
using kernels::detail::DropoutRun;
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

void dropout(const DropoutArgs& args, const DropoutRun* stretches, std::size_t count, c10::DeviceIndex index) {
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, index));
  launch(index, kDropout);
  if (computes_nothing()) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (args.x_type == Type::f32) {
      dropout_to<float>(args, stretches[i], index);
    } else if (args.x_type == Type::bf16) {
      dropout_to<c10::BFloat16>(args, stretches[i], index);
    } else {
      dropout_to<c10::Half>(args, stretches[i], index);
    }
  }
}

}  // namespace
}  // namespace millrace::standin

extern "C" __attribute__((visibility("default"))) const millrace::kernels::DeviceTable* millrace_cuda_kernels() {
  static const millrace::kernels::DeviceTable table{.dropout = &millrace::standin::dropout};
  const char* const own = std::getenv("STANDIN_OWN_KERNELS");
  return own != nullptr && std::string_view(own) == "none" ? nullptr : &table;
}
