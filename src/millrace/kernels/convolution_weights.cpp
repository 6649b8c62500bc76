#include "millrace/kernels/convolution_weights.h"

#include <ATen/ops/convolution_backward.h>

#include <array>
#include <atomic>
#include <tuple>

namespace millrace::kernels {
namespace {

constexpr std::array<std::int64_t, 3> kOne{1, 1, 1}, kNone{0, 0, 0};
constexpr std::int64_t kBf16Bytes = 2;

std::atomic<int> censuses = 0;

}  // namespace

CutAsInBf16::CutAsInBf16() noexcept { ++censuses; }
CutAsInBf16::~CutAsInBf16() { --censuses; }

ConvolutionWeights convolution_weights(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                       bool wants_weight, bool wants_bias) {
  const std::int64_t bytes = (x.numel() + gradient.numel()) * kBf16Bytes;
  const bool as_in_bf16 = x.scalar_type() == at::kBFloat16 || (x.scalar_type() == at::kFloat && censuses > 0);
  if (bytes > kWholeBytes && as_in_bf16 && x.is_cpu() && x.dim() == 5) {
    const VolumeConvolution how{.stride = kOne, .padding = kOne, .dilation = kOne, .output_padding = kNone};
    return weights_by_planes(x, gradient, weight, how, wants_weight, wants_bias);
  }
  const std::array<std::int64_t, 1> outputs{weight.size(0)};
  const auto found = at::convolution_backward(gradient, x, weight, at::IntArrayRef(outputs), kOne, kOne, kOne, false, kNone, 1,
                                              {false, wants_weight, wants_bias});
  ConvolutionWeights sums;
  if (wants_weight) sums.weight = std::get<1>(found).to(at::kFloat);
  if (wants_bias) sums.bias = std::get<2>(found).to(at::kFloat);
  return sums;
}

}  // namespace millrace::kernels
