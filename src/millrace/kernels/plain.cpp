#include "millrace/kernels/plain.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "millrace/kernels/arguments.h"
#include "millrace/kernels/detail/dropout_layout.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {

at::Tensor dropout_with_mask(const at::Tensor& x, const at::Tensor& keep, double p) {
  const at::Tensor y = at::where(keep, wide(x) * static_cast<double>(dropout_scale(p)), at::Scalar(0.0));
  return y.to(x.scalar_type());
}

at::Tensor causal_attention_with_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& keep,
                                      double p, std::optional<double> scale) {
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
  const at::Tensor queries = q.transpose(1, 2);
  const at::Tensor past = at::ones({q.size(1), q.size(1)}, q.options().dtype(at::kBool)).tril();
  // Scales fp16 queries before the product, because the product could overflow before it is scaled.
  const bool first = q.scalar_type() == at::kHalf;
  at::Tensor scores = at::matmul(first ? queries * factor : queries, k.transpose(1, 2).transpose(2, 3));
  if (!first) scores = scores * factor;
  scores = scores.masked_fill(past.logical_not(), -std::numeric_limits<double>::infinity());
  at::Tensor weights = at::softmax(scores, -1);
  if (keep.defined()) weights = dropout_with_mask(weights, keep, p);
  return at::matmul(weights.to(v.scalar_type()), v.transpose(1, 2)).transpose(1, 2).contiguous();
}

at::Tensor dropout_mask(at::IntArrayRef sizes, const Dropout& site, c10::Device device) {
  const auto bits = at::TensorOptions(at::kBool).device(device);
  if (site.p >= 1.0) return at::zeros(sizes, bits);
  if (!device.is_cpu() && device_table(device.type()) == nullptr) return composed_mask(sizes, site, device);
  return dropout(at::ones(sizes, bits.dtype(at::kFloat)), site).to(at::kBool);
}

at::Tensor dropout_mask_reference(at::IntArrayRef sizes, const Dropout& dropout) {
  at::Tensor mask = at::empty(sizes, at::kBool);
  auto* out = mask.data_ptr<bool>();
  const std::uint32_t threshold = dropout_threshold(dropout.p);
  for (const DropoutRun& stretch : dropout_runs(dropout, mask.numel())) {
    for (std::int64_t i = 0; i < stretch.count; ++i)
      out[stretch.begin + i] = dropout_keeps(dropout.key, threshold, static_cast<std::uint64_t>(stretch.first + i));
  }
  return mask;
}

}  // namespace millrace::kernels
