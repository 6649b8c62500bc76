// Removes foregrounds by principal components along frequency. The components are fitted once, over any amount of data in
// constant memory, stored in a file, and applied as two matrix products.
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

// Removes the components of largest variance: clean = d - A (A^T d) with d = x - mean, where A holds the first n_fg eigenvectors
// of the covariance. The mean is not added back.
class ForegroundPca {
 public:
  // mean (F), eigenvalues (F) in descending order, vectors (F, F) with one eigenvector in each column, all fp64 on the CPU; 1 <=
  // n_fg < F.
  ForegroundPca(at::Tensor mean, at::Tensor eigenvalues, at::Tensor vectors, std::int64_t n_fg);

  [[nodiscard]] std::int64_t frequencies() const { return mean_.size(0); }
  [[nodiscard]] std::int64_t n_fg() const noexcept { return n_fg_; }
  [[nodiscard]] const at::Tensor& mean() const noexcept { return mean_; }
  [[nodiscard]] const at::Tensor& eigenvalues() const noexcept { return eigenvalues_; }
  [[nodiscard]] const at::Tensor& vectors() const noexcept { return vectors_; }
  [[nodiscard]] at::Tensor components() const { return vectors_.narrow(1, 0, n_fg_); }  // A (F, n_fg)
  [[nodiscard]] double variance_explained() const;  // share of the variance that the first n_fg components explain, 0 to 1

  // x (..., F, P) has P pixels along the last axis, in fp32 or fp64 on any device. Computed without autocast and TF32, because
  // the signal is 1e-5 of the removed part.
  [[nodiscard]] at::Tensor clean(const at::Tensor& x, const Fused& fused = {}) const;

  // Further entries of the file: "num_samples", "split_seed" and "fingerprint" of the data. `freq_mhz`: the centres of the
  // channels in MHz (may be undefined).
  std::map<std::string, std::string> facts;
  at::Tensor freq_mhz;

  // Writes a safetensors file with fg_components (F, n_fg), signal_components (F, F - n_fg), eigenvalues, mean_per_freq and
  // freq_mhz, all fp64. The file is written under a temporary name, synced and renamed, so that a kill leaves no partial file.
  // Throws DataError with the reason if the file can't be written.
  void save(Fs& fs, const std::filesystem::path& path) const;
  // Also reads the Python original's .pt file: a dict with the same names, whose fp32 is converted to fp64. Throws DataError,
  // which names the file, if the file is of another kind, if shapes do not fit each other, or if numbers are not finite.
  [[nodiscard]] static ForegroundPca load(const std::filesystem::path& path);

 private:
  struct OnDevice {
    at::Tensor mean, components;
  };
  const OnDevice& on(const at::Tensor& like) const;

  at::Tensor mean_, eigenvalues_, vectors_;
  std::int64_t n_fg_;
  mutable std::optional<OnDevice> cached_;  // for the device and type of the last call; only the training loop's thread uses it
};

// Sums over pixels in fp64: n, the mean m and the products of frequencies. All are relative to the mean of the first data,
// because a large common part would cancel in C = (sum of d d^T - n m m^T) / (n - 1). Memory does not grow with the data.
class PcaFit {
 public:
  void add(const at::Tensor& x);  // x (..., F, P) with pixels along the last axis; real, any floating type; F must stay the same
  [[nodiscard]] std::int64_t pixels() const noexcept { return pixels_; }
  [[nodiscard]] at::Tensor mean() const;
  [[nodiscard]] at::Tensor covariance() const;  // (F, F); needs at least two pixels
  // Returns the eigenvectors of the covariance in descending order of eigenvalues. The sign of each vector is such that its
  // largest entry is positive.
  [[nodiscard]] ForegroundPca finish(std::int64_t n_fg) const;

 private:
  std::int64_t pixels_ = 0;
  at::Tensor origin_, sum_, products_;
};

// Turns a complex tensor (..., F, P) into real numbers (..., F, 2 P): real and imaginary parts become separate pixels. The result
// is a view if x is contiguous.
[[nodiscard]] at::Tensor as_pixels(const at::Tensor& x);

}  // namespace millrace::nn
