// A frozen vision tower's features of images, kept over the epochs of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// A frozen tower gets the same number of images in each call, so that an image's features do not depend on its batch: kept or
// recomputed, in a resumed run or not, they are the same bits. (Otherwise each batch would have another number of missing images,
// and a product of another shape may use another kernel.) Belongs to the loop's thread.
class FeatureStore {
 public:
  using Make = std::function<at::Tensor(const at::Tensor& pixels)>;  // (together, 3, S, S) -> (together, P, d)

  // Keeps at most `budget` bytes of features of images numbered 0..images-1; 0 keeps nothing. `together` is the number of images
  // per call, at least 1; if fewer are missing, the last one is repeated.
  FeatureStore(std::int64_t images, std::uint64_t budget, std::int64_t together = 1);
  // Features (n, P, d) of images `ids` (n, on the host), `pixels` (n, 3, S, S). A repeated image is computed once.
  at::Tensor of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  [[nodiscard]] std::int64_t made() const noexcept { return made_; }  // images computed so far, without repeats
  void forget();  // call after a change of number format: features get other bits

 private:
  [[nodiscard]] at::Tensor kept(std::int64_t image) const;      // undefined if it is not kept
  at::Tensor keep(std::int64_t image, const at::Tensor& made);  // keeps them if they fit; returns the image's features

  std::vector<at::Tensor> kept_;  // by image; undefined if not kept yet
  std::uint64_t budget_, bytes_ = 0;
  std::size_t together_;
  std::int64_t made_ = 0;
};

}  // namespace millrace::recipes::image_pairs
