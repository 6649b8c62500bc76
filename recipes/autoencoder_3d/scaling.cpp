#include "recipes/autoencoder_3d/scaling.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>

#include <limits>
#include <vector>

namespace millrace::recipes::autoencoder_3d {

// Only a few values lie above percentile 99.5, so the largest values are selected without sorting the others.
at::Tensor range_of(const at::Tensor& x) {
  const at::Tensor rows = x.detach().flatten(2);
  const std::int64_t count = rows.size(2);
  const Quantile place = upper_place(count);
  const at::Tensor top = std::get<0>(at::topk(rows, count - place.below, 2, /*largest=*/true, /*sorted=*/true));
  const at::Tensor below = top.select(2, top.size(2) - 1);
  const at::Tensor above = top.size(2) > 1 ? top.select(2, top.size(2) - 2) : below;
  return at::stack({rows.amin(2), below + (above - below) * place.weight}, 2);
}

Scaled scale_to_unit(const at::Tensor& x, const at::Tensor& range) {
  std::vector<std::int64_t> per_row(static_cast<std::size_t>(x.dim()), 1);
  per_row[0] = x.size(0);
  per_row[1] = x.size(1);
  const at::Tensor low = range.select(2, 0);
  const at::Tensor width = range.select(2, 1) - low;
  const at::Tensor flat = width == 0;
  const at::Tensor divisor = width.masked_fill(flat, std::numeric_limits<double>::infinity());
  return {(x - low.reshape(per_row)).div_(divisor.reshape(per_row)).clamp_(0, 1), flat};
}

}  // namespace millrace::recipes::autoencoder_3d
