// The CUDA plugin's own kernels with the same arithmetic, lane by lane. STANDIN_OWN_KERNELS=none is a plugin that was built
// without nvcc: LibTorch's operations do their work.
#include "millrace/kernels/device_table.h"

#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "device_memory.h"
#include "millrace/kernels/detail/test_launch.h"
#include "millrace/kernels/detail/test_launch_decoder.h"
#include "millrace/kernels/detail/test_launch_volumes.h"
#include "operations.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

namespace launched = kernels::launched;
using kernels::Pointwise;
using kernels::detail::Type;
using Site = kernels::DeviceTable::Site;

// What a kernel reads or writes: addresses of tensors.
struct KernelUse {
  const void* begin;
  std::int64_t bytes;  // from the first to the last
  bool written;
  std::int64_t moved = -1;  // bytes without gaps; -1: it has none
};
KernelUse reads(const void* begin, std::int64_t elements, Type type) {
  return {begin, elements * (type == Type::f32 ? 4 : 2), false};
}
KernelUse writes(const void* begin, std::int64_t elements, Type type) {
  return {begin, reads(begin, elements, type).bytes, true};
}
KernelUse reads(Site recorded) { return {recorded, sizeof *recorded, false}; }

template <typename T>
T* for_kernels_of(T* address) {
  return reinterpret_cast<T*>(for_kernels(address));
}
template <typename T>
void to_kernels(T*& address) {
  address = for_kernels_of(address);
}

// Runs `kernel` now or, in a recording, at each replay.
template <typename F>
void launch_kernel(const std::string& name, int device, const std::vector<KernelUse>& uses, F kernel) {
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  launch(device, name);
  if (lists_operations()) {
    std::vector<Operand> operands;
    for (const KernelUse& use : uses)
      operands.push_back({use.begin, use.moved < 0 ? use.bytes : use.moved, !use.written, use.written});
    list_operation(name, operands);
  }
  if (computes_nothing()) return;
  const auto run = [=] {
    for (const KernelUse& use : uses) {
      const std::byte* const begin = for_kernels(use.begin);
      if (use.begin != nullptr && use.bytes > 0) touch(device, begin, begin + use.bytes, use.written, name);
    }
    kernel();
  };
  Recorder* const open = recorder(device);
  if (open == nullptr) return run();
  for (const KernelUse& use : uses) open->needs(use.begin);
  open->add([run, device] {
    in_order(device);
    run();
  });
}

void dropout(const kernels::detail::DropoutArgs& args, Site recorded, c10::DeviceIndex index) {
  kernels::detail::DropoutArgs there = args;
  to_kernels(there.x), to_kernels(there.residual), to_kernels(there.out);
  launch_kernel("millrace::dropout", index,
                {reads(args.x, args.count, args.x_type), reads(args.residual, args.count, args.out_type),
                 writes(args.out, args.count, args.out_type), reads(recorded)},
                [there, recorded] { launched::dropout(there, for_kernels_of(recorded)); });
}

void gelu(const kernels::detail::GeluArgs& args, Site recorded, c10::DeviceIndex index) {
  kernels::detail::GeluArgs there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out);
  launch_kernel("millrace::gelu", index,
                {reads(args.x, args.count, args.type), reads(args.gradient, args.count, args.type),
                 writes(args.out, args.count, args.type), reads(recorded)},
                [there, recorded] { launched::gelu(there, for_kernels_of(recorded)); });
}

void norm_forward(const kernels::detail::NormForward& args, std::int64_t rows, Site recorded, c10::DeviceIndex index) {
  const std::int64_t count = rows * args.width;
  kernels::detail::NormForward there = args;
  to_kernels(there.residual), to_kernels(there.branch), to_kernels(there.sum), to_kernels(there.y);
  to_kernels(there.weight), to_kernels(there.bias), to_kernels(there.statistics);
  launch_kernel("millrace::norm_forward", index,
                {reads(args.residual, count, args.residual_type), reads(args.branch, count, args.y_type),
                 reads(args.weight, args.width, Type::f32), reads(args.bias, args.width, Type::f32), reads(recorded),
                 writes(args.branch == nullptr ? nullptr : args.sum, count, args.residual_type),
                 writes(args.y, count, args.y_type), writes(args.statistics, 2 * rows, Type::f32)},
                [there, rows, recorded] { launched::norm_forward(there, rows, for_kernels_of(recorded)); });
}

void norm_backward(const kernels::detail::NormBackward& args, std::int64_t rows, std::int64_t blocks, Site recorded,
                   float* partial, c10::DeviceIndex index) {
  const std::int64_t count = rows * args.width;
  kernels::detail::NormBackward there = args;
  to_kernels(there.sum), to_kernels(there.y_gradient), to_kernels(there.sum_gradient), to_kernels(there.residual_gradient);
  to_kernels(there.branch_gradient), to_kernels(there.statistics), to_kernels(there.weight);
  launch_kernel(
      "millrace::norm_backward", index,
      {reads(args.sum, count, args.residual_type), reads(args.y_gradient, count, args.y_type),
       reads(args.sum_gradient, count, args.residual_type), reads(args.statistics, 2 * rows, Type::f32),
       reads(args.weight, args.width, Type::f32), reads(recorded), writes(args.residual_gradient, count, args.residual_type),
       writes(args.branch_gradient, count, args.y_type), writes(partial, 2 * blocks * args.width, Type::f32)},
      [there, rows, blocks, recorded, sums = for_kernels_of(partial)] {
        launched::norm_backward(there, rows, blocks, for_kernels_of(recorded), sums);
      });
}

kernels::detail::CrossEntropy for_kernels_of(kernels::detail::CrossEntropy args) {
  to_kernels(args.logits), to_kernels(args.targets), to_kernels(args.log_sums), to_kernels(args.gradient),
      to_kernels(args.upstream);
  return args;
}
KernelUse reads_targets(const kernels::detail::CrossEntropy& args, std::int64_t rows) { return {args.targets, rows * 8, false}; }

void cross_entropy_forward(const kernels::detail::CrossEntropy& args, std::int64_t rows, float* losses, c10::DeviceIndex index) {
  launch_kernel(
      "millrace::cross_entropy_forward", index,
      {reads(args.logits, rows * args.classes, args.type), reads_targets(args, rows), writes(args.log_sums, rows, Type::f32),
       writes(losses, rows, Type::f32)},
      [there = for_kernels_of(args), rows, to = for_kernels_of(losses)] { launched::cross_entropy_forward(there, rows, to); });
}

void cross_entropy_backward(const kernels::detail::CrossEntropy& args, std::int64_t rows, c10::DeviceIndex index) {
  launch_kernel(
      "millrace::cross_entropy_backward", index,
      {reads(args.logits, rows * args.classes, args.type), reads_targets(args, rows), reads(args.log_sums, rows, Type::f32),
       reads(args.upstream, 1, Type::f32), writes(args.gradient, rows * args.classes, args.type)},
      [there = for_kernels_of(args), rows] { launched::cross_entropy_backward(there, rows); });
}

void pointwise(Pointwise function, const kernels::detail::PointwiseArgs& args, c10::DeviceIndex index) {
  kernels::detail::PointwiseArgs there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out);
  launch_kernel(function == Pointwise::smooth_leaky ? "millrace::smooth_leaky" : "millrace::quick_gelu", index,
                {reads(args.x, args.count, args.type), reads(args.gradient, args.count, args.type),
                 writes(args.out, args.count, args.type)},
                [there, function] { launched::pointwise(function, there); });
}

void rms_rows(const kernels::DeviceRms& args, c10::DeviceIndex index) {
  const std::int64_t count = args.rows * args.width;
  const bool backward = args.y_gradient != nullptr;
  kernels::DeviceRms there = args;
  to_kernels(there.x), to_kernels(there.branch), to_kernels(there.sum), to_kernels(there.y), to_kernels(there.y_gradient);
  to_kernels(there.sum_gradient), to_kernels(there.x_gradient), to_kernels(there.branch_gradient), to_kernels(there.weight);
  to_kernels(there.rates);
  launch_kernel("millrace::rms_rows", index,
                {reads(args.x, count, args.x_type),
                 reads(args.branch, count, args.y_type),
                 reads(args.y_gradient, count, args.y_type),
                 reads(args.sum_gradient, count, args.x_type),
                 reads(args.weight, args.width, Type::f32),
                 writes(args.sum, count, args.x_type),
                 writes(args.y, count, args.y_type),
                 writes(args.x_gradient, count, args.x_type),
                 writes(args.branch_gradient, count, args.y_type),
                 {args.rates, args.rows * 4, !backward}},
                [there] { launched::rms_rows(there); });
}

void swiglu(const kernels::DeviceSwiglu& args, c10::DeviceIndex index) {
  const std::int64_t count = args.rows * args.width;
  kernels::DeviceSwiglu there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out);
  launch_kernel("millrace::swiglu", index,
                {reads(args.x, 2 * count, args.type), reads(args.gradient, count, args.type),
                 writes(args.out, args.gradient == nullptr ? count : 2 * count, args.type)},
                [there] { launched::swiglu(there); });
}

void turn(const kernels::DeviceTurn& args, c10::DeviceIndex index) {
  const std::int64_t of_row = args.heads * 2 * args.half, angles = args.rows * args.half;
  const std::int64_t moved = reads(args.x, args.batch * args.rows * of_row, args.type).bytes;
  const auto strided = [&](KernelUse use, std::int64_t batch_stride, std::int64_t row_stride) {
    use.bytes = reads(use.begin, (args.batch - 1) * batch_stride + (args.rows - 1) * row_stride + of_row, args.type).bytes;
    use.moved = moved;
    return use;
  };
  kernels::DeviceTurn there = args;
  to_kernels(there.x), to_kernels(there.out), to_kernels(there.cos), to_kernels(there.sin);
  launch_kernel("millrace::turn", index,
                {strided({args.x, 0, false}, args.batch_stride, args.row_stride), reads(args.cos, angles, Type::f32),
                 reads(args.sin, angles, Type::f32), strided({args.out, 0, true}, args.out_batch_stride, args.out_row_stride)},
                [there] { launched::turn(there); });
}

void rms_norm(const kernels::detail::RmsNorm& args, c10::DeviceIndex index) {
  const std::int64_t positions = args.samples * args.positions, count = positions * args.channels;
  kernels::detail::RmsNorm there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out), to_kernels(there.rates);
  launch_kernel("millrace::rms_norm", index,
                {reads(args.x, count, args.type),
                 reads(args.gradient, count, args.type),
                 writes(args.out, count, args.type),
                 {args.rates, positions * 4, args.gradient == nullptr}},
                [there] { launched::rms_norm(there); });
}

void group_norm(const kernels::DeviceGroupNorm& args, c10::DeviceIndex index) {
  const std::int64_t channels = args.samples * args.channels, count = channels * args.positions;
  kernels::DeviceGroupNorm there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out), to_kernels(there.weight), to_kernels(there.bias);
  to_kernels(there.statistics), to_kernels(there.scratch), to_kernels(there.sums), to_kernels(there.more);
  to_kernels(there.before);
  // One kernel sums x (and the gradient), another one reads them again for the result.
  launch_kernel("millrace::group_norm", index,
                {reads(args.x, count, args.type),
                 reads(args.x, count, args.type),
                 reads(args.gradient, count, args.type),
                 reads(args.gradient, count, args.type),
                 reads(args.more, count, args.type),
                 writes(args.out, count, args.type),
                 reads(args.before, args.channels, Type::f32),
                 reads(args.weight, args.channels, Type::f32),
                 reads(args.bias, args.channels, Type::f32),
                 {args.statistics, 4 * args.statistics_floats(), args.gradient == nullptr},
                 writes(args.scratch, args.scratch_floats(), Type::f32),
                 writes(args.sums, args.sums_floats(), Type::f32)},
                [there] { launched::group_norm(there); });
}

void soft_pool(const kernels::detail::SoftPool& args, c10::DeviceIndex index) {
  const std::int64_t count = kernels::detail::pool_elements(args), results = kernels::detail::pool_results(args);
  kernels::detail::SoftPool there = args;
  to_kernels(there.x), to_kernels(there.gradient), to_kernels(there.out);
  launch_kernel("millrace::soft_pool", index,
                {reads(args.x, count, args.type), reads(args.gradient, results, args.type),
                 writes(args.out, args.gradient == nullptr ? results : count, args.type)},
                [there] { launched::soft_pool(there); });
}

void circular_pad(const kernels::CircularPad& args, c10::DeviceIndex index) {
  const kernels::detail::PaddedVolume& v = args.volume;
  const std::int64_t plain = v.samples * v.planes * v.depth * v.height * v.row();
  const std::int64_t end = v.padded_first + (v.samples - 1) * v.padded_stride + v.planes * v.padded_plane() - (v.step - v.pixel);
  kernels::CircularPad there = args;
  to_kernels(there.in), to_kernels(there.out);
  launch_kernel(
      "millrace::circular_pad", index,
      {reads(args.in, args.backward ? end : plain, args.type), writes(args.out, args.backward ? plain : end, args.type)},
      [there] { launched::circular_pad(there); });
}

void column_sums(const void* matrix, Type type, std::int64_t rows, std::int64_t columns, std::int64_t blocks, float* parts,
                 c10::DeviceIndex index) {
  launch_kernel("millrace::column_sums", index, {reads(matrix, rows * columns, type), writes(parts, blocks * columns, Type::f32)},
                [=, from = for_kernels_of(matrix), to = for_kernels_of(parts)] {
                  launched::column_sums(from, type, rows, columns, blocks, to);
                });
}

void lerp(const kernels::detail::Lerp& args, c10::DeviceIndex index) {
  std::vector<KernelUse> uses = {reads(args.weight, 1, Type::f32)};
  kernels::detail::Lerp there = args;
  to_kernels(there.weight);
  for (std::size_t i = 0; i < static_cast<std::size_t>(args.count); ++i) {
    uses.push_back(reads(args.pairs[i].value, args.pairs[i].count, Type::f32));
    uses.push_back(reads(args.pairs[i].average, args.pairs[i].count, Type::f32));
    uses.push_back(writes(args.pairs[i].average, args.pairs[i].count, Type::f32));
    to_kernels(there.pairs[i].value), to_kernels(there.pairs[i].average);
  }
  launch_kernel("millrace::lerp", index, uses, [there] { launched::lerp(there); });
}

void write(void* to_device, const void* from, std::size_t bytes, c10::DeviceIndex index) {
  refuse_in_recording("bytes that the host writes: " + std::to_string(bytes));
  launch_kernel("millrace::write", index, {{to_device, static_cast<std::int64_t>(bytes), true}},
                [=] { std::memcpy(for_kernels(to_device), from, bytes); });
}

}  // namespace
}  // namespace millrace::standin

extern "C" __attribute__((visibility("default"))) const millrace::kernels::DeviceTable* millrace_cuda_kernels() {
  static const millrace::kernels::DeviceTable table{.dropout = &millrace::standin::dropout,
                                                    .gelu = &millrace::standin::gelu,
                                                    .norm_forward = &millrace::standin::norm_forward,
                                                    .norm_backward = &millrace::standin::norm_backward,
                                                    .cross_entropy_forward = &millrace::standin::cross_entropy_forward,
                                                    .cross_entropy_backward = &millrace::standin::cross_entropy_backward,
                                                    .pointwise = &millrace::standin::pointwise,
                                                    .rms_rows = &millrace::standin::rms_rows,
                                                    .swiglu = &millrace::standin::swiglu,
                                                    .turn = &millrace::standin::turn,
                                                    .rms_norm = &millrace::standin::rms_norm,
                                                    .group_norm = &millrace::standin::group_norm,
                                                    .soft_pool = &millrace::standin::soft_pool,
                                                    .circular_pad = &millrace::standin::circular_pad,
                                                    .column_sums = &millrace::standin::column_sums,
                                                    .lerp = &millrace::standin::lerp,
                                                    .write = &millrace::standin::write};
  const char* const own = std::getenv("STANDIN_OWN_KERNELS");
  return own != nullptr && std::string_view(own) == "none" ? nullptr : &table;
}
