// Delay spectra: power along frequency's Fourier axis, where smooth foregrounds gather around zero and the signal does not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::recipes::cosmology {

// Four-term Blackman-Harris window (.35875, .48829, .14128, .01168), symmetric: its last value equals its first. fp32.
[[nodiscard]] at::Tensor blackman_harris(std::int64_t length, at::Device device);

// For volumes (N, 2, R, f, bl): |shifted FFT over f of (volume * window)|^2, summed over all axes but f; (f), delay zero at f /
// 2. fp64.
[[nodiscard]] at::Tensor delay_power(const at::Tensor& volumes);

// Sums over one validation.
struct DelaySpectra {
  at::Tensor truth, recovered, residual, input_residual;  // (f); undefined before the first batch
  void add(const at::Tensor& truth_volumes, const at::Tensor& recovered_volumes, const at::Tensor& input_volumes);
  DelaySpectra& operator+=(const DelaySpectra& other);
};

}  // namespace millrace::recipes::cosmology
