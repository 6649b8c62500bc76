#include "millrace/kernels/convolution_planes.h"

#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "millrace/system/instructions.h"

namespace millrace::kernels {
namespace {

using Sizes = std::array<std::int64_t, 2>;
constexpr std::int64_t kDepth = 2;  // the depth axis in (N, C, D, H, W)
constexpr std::int64_t kBytesOfBf16 = 2;
constexpr std::int64_t kTogetherBytes = std::int64_t{1}  // the most bytes of samples that share a call; at this size the cost of
                                                         // the call itself is negligible
                                        << 20U;

std::int64_t of_depth(at::IntArrayRef values) { return values[0]; }
Sizes in_plane(at::IntArrayRef values) { return values.size() == 1 ? Sizes{values[0], values[0]} : Sizes{values[1], values[2]}; }

// Returns x as (N, D, H, W, C): a view if x is channels-last, else a copy. Each sample is copied as a transposed matrix, because
// LibTorch transposes a matrix in blocks but a volume element by element.
at::Tensor channels_behind(const at::Tensor& x) {
  if (x.is_contiguous(at::MemoryFormat::ChannelsLast3d)) return x.permute({0, 2, 3, 4, 1});
  const std::int64_t samples = x.size(0), channels = x.size(1), places = x.size(2) * x.size(3) * x.size(4);
  const at::Tensor rows = x.contiguous().view({samples, channels, places});
  at::Tensor turned = at::empty({samples, places, channels}, x.options());
  for (std::int64_t i = 0; i < samples; ++i) turned.select(0, i).copy_(rows.select(0, i).t());
  return turned.view({samples, x.size(2), x.size(3), x.size(4), channels});
}

// The planes of two volumes that a plane of the kernel combines ("meet"): for p from `first` to `last` - 1, plane p of one volume
// meets plane p * step + shift of the other.
struct Meeting {
  std::int64_t first = 0, last = 0, step = 1, shift = 0;
};
Meeting meeting(std::int64_t kernel_plane, const VolumeConvolution& how, std::int64_t planes, std::int64_t others) {
  const std::int64_t step = of_depth(how.stride);
  const std::int64_t shift = kernel_plane * of_depth(how.dilation) - of_depth(how.padding);
  const std::int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
  const std::int64_t last = shift < others ? std::min(planes, (others - 1 - shift) / step + 1) : 0;
  return {first, last, step, shift};
}

// Planes of (N, D, H, W, C) as samples (M, C, H, W).
at::Tensor as_samples(const at::Tensor& planes) { return planes.flatten(0, 1).permute({0, 3, 1, 2}); }

class Sum {
 public:
  Sum(const at::Tensor& weight, const VolumeConvolution& how, std::int64_t outputs)
      : how_(how),
        stride_(in_plane(how.stride)),
        padding_(in_plane(how.padding)),
        dilation_(in_plane(how.dilation)),
        output_padding_(in_plane(how.output_padding)),
        outputs_{outputs},
        plane_(at::empty({weight.size(0), weight.size(1), weight.size(3), weight.size(4)}, weight.options())),
        weight_(at::zeros({weight.size(kDepth), weight.size(0), weight.size(1), weight.size(3), weight.size(4)}, at::kFloat)) {}

  // Adds the gradients of some samples; each call of the library gets at most `at_a_time` planes. The bias's gradient is
  // computed together with plane `with_bias` of the kernel, which meets each plane of `gradient` once.
  void add(const at::Tensor& x, const at::Tensor& gradient, std::int64_t at_a_time, std::int64_t with_bias) {
    const at::Tensor inputs = channels_behind(x), outputs = channels_behind(gradient);
    const at::Tensor &ones = how_.transposed ? inputs : outputs, &others = how_.transposed ? outputs : inputs;
    for (std::int64_t k = 0; k < weight_.size(0); ++k) {
      const Meeting met = meeting(k, how_, ones.size(1), others.size(1));
      for (std::int64_t first = met.first; first < met.last; first += at_a_time) {
        const std::int64_t last = std::min(first + at_a_time, met.last);
        const at::Tensor one = as_samples(ones.slice(1, first, last));
        const std::int64_t from = first * met.step + met.shift, to = (last - 1) * met.step + met.shift + 1;
        const at::Tensor other = as_samples(others.slice(1, from, to, met.step));
        add_plane(k, how_.transposed ? one : other, how_.transposed ? other : one, k == with_bias);
      }
    }
  }
  [[nodiscard]] at::Tensor weight() const { return weight_.permute({1, 2, 0, 3, 4}).contiguous(); }
  [[nodiscard]] const at::Tensor& bias() const { return bias_; }

 private:
  void add_plane(std::int64_t k, const at::Tensor& x, const at::Tensor& gradient, bool wants_bias) {
    const auto found =
        at::convolution_backward(gradient, x, plane_, at::OptionalIntArrayRef(outputs_), stride_, padding_, dilation_,
                                 how_.transposed, output_padding_, how_.groups, {false, true, wants_bias});
    weight_.select(0, k).add_(std::get<1>(found));
    if (!wants_bias) return;
    const at::Tensor bias = std::get<2>(found).to(at::kFloat);
    bias_ = bias_.defined() ? bias_.add(bias) : bias;
  }

  const VolumeConvolution& how_;
  Sizes stride_, padding_, dilation_, output_padding_;
  std::array<std::int64_t, 1> outputs_;
  at::Tensor plane_;          // stands for a plane of the kernel; only its sizes are used
  at::Tensor weight_, bias_;  // weight_ is (kD, O, C, kH, kW), bias_ is (O)
};

// The plane of the kernel that meets each plane of the gradient exactly once; -1 if no plane does.
std::int64_t plane_that_meets_all(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                  const VolumeConvolution& how) {
  for (std::int64_t k = 0; !how.transposed && k < weight.size(kDepth); ++k) {
    const Meeting met = meeting(k, how, gradient.size(kDepth), x.size(kDepth));
    if (met.first == 0 && met.last == gradient.size(kDepth)) return k;
  }
  return -1;
}

}  // namespace

ConvolutionWeights weights_by_planes(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& weight,
                                     const VolumeConvolution& how, bool wants_weight, bool wants_bias) {
  ConvolutionWeights sums;
  const bool is_empty = x.numel() == 0 || gradient.numel() == 0;
  const std::int64_t with_bias = wants_weight && wants_bias && !is_empty ? plane_that_meets_all(x, gradient, weight, how) : -1;
  if (wants_bias && with_bias < 0) sums.bias = gradient.sum({0, 2, 3, 4}, /*keepdim=*/false, at::kFloat);
  if (!wants_weight) return sums;
  Sum sum(weight, how, gradient.size(1));
  if (!is_empty) {
    // Without AVX-512 each call gets one sample, because oneDNN then has no bf16 convolution. LibTorch's own loop, which is used
    // instead, unrolls all samples of a call and rounds the sum after each sample.
    const bool one_by_one = instructions() < InstructionSet::avx512;
    const std::int64_t samples = x.size(0);
    // Counts 2 bytes per element for fp32 too, so that an fp32 step makes the same library calls as a bf16 step (CutAsInBf16).
    const std::int64_t bytes = (x.numel() + gradient.numel()) / samples * kBytesOfBf16;
    const std::int64_t fit = one_by_one ? 1 : kTogetherBytes / std::max<std::int64_t>(1, bytes);
    const std::int64_t together = std::clamp<std::int64_t>(fit, 1, samples);
    // If not one by one, no more planes than this meet, so that one call gets all of them.
    const std::int64_t at_a_time = one_by_one ? 1 : x.size(kDepth) + gradient.size(kDepth);
    for (std::int64_t i = 0; i < samples; i += together) {
      const std::int64_t count = std::min(together, samples - i);
      sum.add(x.narrow(0, i, count), gradient.narrow(0, i, count), at_a_time, with_bias);
    }
  }
  sums.weight = sum.weight();
  if (with_bias >= 0) sums.bias = sum.bias();
  return sums;
}

}  // namespace millrace::kernels
