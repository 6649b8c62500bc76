#include "millrace/kernels/convolution_weights.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>

#include "millrace/kernels/arguments.h"

namespace millrace::kernels {
namespace {

constexpr std::array<std::int64_t, 3> kOne{1, 1, 1}, kNone{0, 0, 0};
constexpr std::int64_t kDepth = 2;
constexpr std::int64_t kBytesOfBf16 = 2;

std::atomic<int> censuses = 0;

ConvolutionWeights by_library(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight, at::IntArrayRef padding,
                              bool wants_weight, bool wants_bias) {
  const std::array<std::int64_t, 1> outputs{weight.size(0)};
  const auto found = at::convolution_backward(gradient, x, weight, at::IntArrayRef(outputs), kOne, padding, kOne, false, kNone, 1,
                                              {false, wants_weight, wants_bias});
  ConvolutionWeights sums;
  if (wants_weight) sums.weight = std::get<1>(found).to(at::kFloat);
  if (wants_bias) sums.bias = std::get<2>(found).to(at::kFloat);
  return sums;
}

// Planes first - 1 to last, of which those outside are zero.
at::Tensor planes_around(const at::Tensor& x, std::int64_t first, std::int64_t last) {
  const std::int64_t begin = std::max<std::int64_t>(first - 1, 0), end = std::min(last + 1, x.size(kDepth));
  const at::Tensor inside = x.narrow(kDepth, begin, end - begin);
  const std::array<std::int64_t, 6> zeros{0, 0, 0, 0, begin - (first - 1), last + 1 - end};
  return zeros[4] + zeros[5] == 0 ? inside : at::constant_pad_nd(inside, zeros);
}

}  // namespace

CutAsInBf16::CutAsInBf16() noexcept { ++censuses; }
CutAsInBf16::~CutAsInBf16() { --censuses; }

ConvolutionWeights convolution_weights(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                       bool wants_weight, bool wants_bias) {
  const std::int64_t bytes = (x.numel() + gradient.numel()) * kBytesOfBf16;
  const bool as_in_bf16 = x.scalar_type() == at::kBFloat16 || (x.scalar_type() == at::kFloat && censuses > 0);
  const bool is_whole = bytes <= kWholeBytes || !as_in_bf16 || !x.is_cpu() || x.dim() != 5;
  const std::int64_t slabs = is_whole ? 1 : std::min((bytes + kWholeBytes - 1) / kWholeBytes, x.size(kDepth));
  if (slabs == 1) return by_library(x, gradient, weight, kOne, wants_weight, wants_bias);
  constexpr std::array<std::int64_t, 3> kInPlane{0, 1, 1};
  const at::Tensor dy = gradient.contiguous(layout_of(x));
  ConvolutionWeights sums;
  for (std::int64_t slab = 0; slab < slabs; ++slab) {
    const std::int64_t first = x.size(kDepth) * slab / slabs, last = x.size(kDepth) * (slab + 1) / slabs;
    const ConvolutionWeights part = by_library(planes_around(x, first, last), dy.narrow(kDepth, first, last - first), weight,
                                               kInPlane, wants_weight, wants_bias);
    const auto add = [slab](at::Tensor& sum, const at::Tensor& more) { sum = slab == 0 ? more : sum.add_(more); };
    if (wants_weight) add(sums.weight, part.weight);
    if (wants_bias) add(sums.bias, part.bias);
  }
  return sums;
}

}  // namespace millrace::kernels
