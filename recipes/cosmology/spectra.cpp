#include "recipes/cosmology/spectra.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/fft_fft.h>
#include <ATen/ops/fft_fftshift.h>

#include <numbers>

namespace millrace::recipes::cosmology {

at::Tensor blackman_harris(std::int64_t length, at::Device device) {
  const double step = length > 1 ? 2.0 * std::numbers::pi / static_cast<double>(length - 1) : 0.0;
  const at::Tensor phase = at::arange(length, at::TensorOptions(at::kDouble).device(device)) * step;
  return (0.35875 - 0.48829 * phase.cos() + 0.14128 * (2 * phase).cos() - 0.01168 * (3 * phase).cos()).to(at::kFloat);
}

at::Tensor delay_power(const at::Tensor& volumes) {
  const at::Tensor window = blackman_harris(volumes.size(3), volumes.device()).unsqueeze(1);
  const at::Tensor real = volumes.to(at::kFloat) * window;
  const at::Tensor sky = at::complex(real.select(1, 0).contiguous(), real.select(1, 1).contiguous());  // (N, R, f, bl)
  const at::Tensor power = at::fft_fft(sky, std::nullopt, 2).abs().square().to(at::kDouble);
  return at::fft_fftshift(power.sum(at::IntArrayRef{0, 1, 3}));
}

void DelaySpectra::add(const at::Tensor& truth_volumes, const at::Tensor& recovered_volumes, const at::Tensor& input_volumes) {
  *this += {delay_power(truth_volumes), delay_power(recovered_volumes), delay_power(recovered_volumes - truth_volumes),
            delay_power(input_volumes - truth_volumes)};
}

DelaySpectra& DelaySpectra::operator+=(const DelaySpectra& other) {
  const auto add = [](at::Tensor& total, const at::Tensor& more) { total = total.defined() ? total + more : more; };
  add(truth, other.truth);
  add(recovered, other.recovered);
  add(residual, other.residual);
  add(input_residual, other.input_residual);
  return *this;
}

}  // namespace millrace::recipes::cosmology
