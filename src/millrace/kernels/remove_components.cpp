#include "millrace/kernels/remove_components.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

constexpr std::int64_t kPixels = 64;  // pixels of a tile; see detail/components.inl
constexpr std::int64_t kBlock = 4;

}  // namespace

at::Tensor remove_components(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components) {
  MR_CHECK(x.dim() >= 2 && x.size(-2) == components.size(0) && mean.numel() == components.size(0),
           "components lie along the second-last axis");
  const at::NoGradGuard no_grad;
  if (!has_kernel(x) || x.scalar_type() != at::kFloat || !x.is_contiguous() || x.numel() == 0)
    return remove_components_plain(x, mean, components);
  const OperationSpan span("millrace::remove_components", x, components);
  const std::int64_t count = (components.size(1) + kBlock - 1) / kBlock * kBlock;
  at::Tensor vectors = at::zeros({components.size(0), count}, components.options());
  vectors.narrow(1, 0, components.size(1)).copy_(components);
  const at::Tensor means = mean.contiguous();
  at::Tensor out = at::empty_like(x);
  const detail::Components args{.x = x.const_data_ptr<float>(),
                                .out = out.mutable_data_ptr<float>(),
                                .mean = means.const_data_ptr<float>(),
                                .vectors = vectors.const_data_ptr<float>(),
                                .frequencies = x.size(-2),
                                .pixels = x.size(-1),
                                .count = count};
  const detail::Table& table = detail::table();
  const std::int64_t planes = x.numel() / (args.frequencies * args.pixels);
  parallel(planes * ((args.pixels + kPixels - 1) / kPixels), [&](std::int64_t begin, std::int64_t end) {
    table.remove_components(args, begin, end, scratch(table.components_scratch(args)));
  });
  return out;
}

at::Tensor remove_components_plain(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& components) {
  const at::Tensor d = (x - mean).reshape({-1, x.size(-2), x.size(-1)});
  const std::int64_t planes = d.size(0);
  const at::Tensor strength = at::bmm(components.t().contiguous().expand({planes, -1, -1}), d);
  return at::baddbmm(d, components.expand({planes, -1, -1}), strength, 1, -1).reshape(x.sizes());
}

}  // namespace millrace::kernels
