// Delay spectra: the power along the Fourier axis of frequency. Smooth foregrounds are near delay zero; the signal is not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace millrace::recipes::cosmology {

// The four-term Blackman-Harris window (.35875, .48829, .14128, .01168). It is symmetric: its last value equals its first. fp32.
[[nodiscard]] at::Tensor blackman_harris(std::int64_t length, at::Device device);

// For volumes (N, 2, R, f, bl): |FFT over f of (volume * window)|^2, shifted so that delay zero is at f / 2, summed over all
// other axes. Returns (f), fp64.
[[nodiscard]] at::Tensor delay_power(const at::Tensor& volumes);

// Delay spectra, summed over a validation.
struct DelaySpectra {
  at::Tensor truth, recovered, residual, input_residual;  // (f); undefined before the first batch
  void add(const at::Tensor& truth_volumes, const at::Tensor& recovered_volumes, const at::Tensor& input_volumes);
  DelaySpectra& operator+=(const DelaySpectra& other);
};

}  // namespace millrace::recipes::cosmology
