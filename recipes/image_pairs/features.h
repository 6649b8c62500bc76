// Keeps the features that a frozen vision tower computes from images, so that later epochs need not compute them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// Each call of the tower gets the same number of images. So an image's features do not depend on its batch: the bits are the
// same whether features are kept or computed again, and in a resumed run. (Otherwise the number of images to compute would
// differ between batches, and a matrix product of another shape may use another kernel.) Used only on the loop's thread.
class FeatureStore {
 public:
  using Make = std::function<at::Tensor(const at::Tensor& pixels)>;  // computes features: (together, 3, S, S) -> (together, P, d)

  // Keeps at most `budget` bytes of features; 0 keeps none. Images have the numbers 0..images-1. `together`: the number of
  // images in a call of the tower, at least 1; if fewer images have to be computed, the last one is repeated.
  FeatureStore(std::int64_t images, std::uint64_t budget, std::int64_t together = 1);
  // Returns the features (n, P, d) of the images with the numbers `ids` (n, on the host) and the pixels `pixels` (n, 3, S, S).
  // If a number occurs several times, its image is computed once.
  at::Tensor of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  [[nodiscard]] std::int64_t made() const noexcept { return made_; }  // number of images computed so far, without repeats
  void forget();  // must be called if the number format changes, because features then have other bits

 private:
  [[nodiscard]] at::Tensor kept(std::int64_t image) const;      // undefined if the features are not kept
  at::Tensor keep(std::int64_t image, const at::Tensor& made);  // keeps the features if there is room; returns them

  std::vector<at::Tensor> kept_;  // by image; undefined if not kept
  std::uint64_t budget_, bytes_ = 0;
  std::size_t together_;
  std::int64_t made_ = 0;
};

}  // namespace millrace::recipes::image_pairs
