#include "millrace/kernels/pointwise.h"

#include <ATen/ops/empty_like.h>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {

at::Tensor pointwise(Pointwise function, const at::Tensor& x, const at::Tensor& gradient) {
  constexpr std::int64_t kGroup = 128;
  at::Tensor out = at::empty_like(x);
  const detail::PointwiseArgs args{.x = x.const_data_ptr(),
                                   .gradient = gradient.defined() ? gradient.const_data_ptr() : nullptr,
                                   .out = out.mutable_data_ptr(),
                                   .type = type_of(x),
                                   .count = x.numel()};
  if (!x.is_cpu()) {
    device_table(x.device().type())->pointwise(function, args, x.device().index());
    return out;
  }
  const auto kernel = function == Pointwise::smooth_leaky ? detail::table().smooth_leaky : detail::table().quick_gelu;
  parallel((args.count + kGroup - 1) / kGroup, [&](std::int64_t begin, std::int64_t end) { kernel(args, begin, end); });
  return out;
}

}  // namespace millrace::kernels
