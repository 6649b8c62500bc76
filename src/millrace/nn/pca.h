// Foreground removal by principal components along frequency: fitted once over any amount of data in constant memory, stored in a
// file, applied as two matrix products.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "millrace/base/fs.h"
#include "millrace/nn/fused.h"

namespace millrace::nn {

inline constexpr Switch kFusedProjection{"fused_projection"};  // off: two matrix products over all pixels; equal within tolerance

// Removes the components of largest variance: clean = d - A (A^T d), d = x - mean, A the first n_fg eigenvectors of the
// covariance. The mean is not added back.
class ForegroundPca {
 public:
  // mean (F), eigenvalues (F) descending, vectors (F, F) with one eigenvector a column, all fp64 on the CPU; 1 <= n_fg < F.
  ForegroundPca(at::Tensor mean, at::Tensor eigenvalues, at::Tensor vectors, std::int64_t n_fg);

  [[nodiscard]] std::int64_t frequencies() const { return mean_.size(0); }
  [[nodiscard]] std::int64_t n_fg() const noexcept { return n_fg_; }
  [[nodiscard]] const at::Tensor& mean() const noexcept { return mean_; }
  [[nodiscard]] const at::Tensor& eigenvalues() const noexcept { return eigenvalues_; }
  [[nodiscard]] const at::Tensor& vectors() const noexcept { return vectors_; }
  [[nodiscard]] at::Tensor components() const { return vectors_.narrow(1, 0, n_fg_); }  // A (F, n_fg)
  [[nodiscard]] double variance_explained() const;  // share explained by the first n_fg, 0 to 1

  // x (..., F, P), P pixels along the last axis, fp32 or fp64 on any device. Computed without autocast and TF32: the signal is
  // 1e-5 of the removed part.
  [[nodiscard]] at::Tensor clean(const at::Tensor& x, const Fused& fused = {}) const;

  // Further contents of its file: "num_samples", "split_seed", "fingerprint" of the data; centres of the channels in MHz (may be
  // undefined).
  std::map<std::string, std::string> facts;
  at::Tensor freq_mhz;

  // Safetensors with fg_components (F, n_fg), signal_components (F, F - n_fg), eigenvalues, mean_per_freq, freq_mhz, all fp64.
  // Written under a temporary name, synced and renamed, so that a kill leaves no partial file. DataError with the reason if it
  // can't be written.
  void save(Fs& fs, const std::filesystem::path& path) const;
  // Also reads the Python original's .pt file: the same names in a dict, fp32 converted to fp64. DataError names the file:
  // another kind of file, shapes that do not fit each other, numbers that are not finite.
  [[nodiscard]] static ForegroundPca load(const std::filesystem::path& path);

 private:
  struct OnDevice {
    at::Tensor mean, components;
  };
  const OnDevice& on(const at::Tensor& like) const;

  at::Tensor mean_, eigenvalues_, vectors_;
  std::int64_t n_fg_;
  mutable std::optional<OnDevice> cached_;  // for the device and type of the last call; the loop's thread only
};

// Sums over pixels in fp64: n, the mean and the products of frequencies, relative to the first data's mean, since a large common
// part would cancel in C = (sum of d d^T - n m m^T) / (n - 1). Memory does not grow with the data.
class PcaFit {
 public:
  void add(const at::Tensor& x);  // (..., F, P), pixels along the last axis; real, any floating type; the same F each time
  [[nodiscard]] std::int64_t pixels() const noexcept { return pixels_; }
  [[nodiscard]] at::Tensor mean() const;
  [[nodiscard]] at::Tensor covariance() const;  // (F, F); at least two pixels
  // Eigenvectors of the covariance in the order of falling eigenvalues, each with its largest entry positive.
  [[nodiscard]] ForegroundPca finish(std::int64_t n_fg) const;

 private:
  std::int64_t pixels_ = 0;
  at::Tensor origin_, sum_, products_;
};

// A complex tensor (..., F, P) as reals (..., F, 2 P): real and imaginary parts become separate pixels. A view if x is
// contiguous.
[[nodiscard]] at::Tensor as_pixels(const at::Tensor& x);

}  // namespace millrace::nn
