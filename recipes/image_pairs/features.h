// What a frozen vision tower says of images, kept over the epochs of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// A frozen tower looks at the same number of images in each call, so that what it says of an image does not depend on the batch
// that the image came in: kept or made anew, in a resumed run or not, features are the same bits. (The images that are missing
// would be another number in each batch, and a product of another shape may take another kernel.) Belongs to the loop's thread.
class FeatureStore {
 public:
  using Make = std::function<at::Tensor(const at::Tensor& pixels)>;  // (together, 3, S, S) -> (together, P, d)

  // Keeps at most `budget` bytes of features of images numbered 0..images-1; 0 = nothing. `together`: images of each call, from
  // 1; where fewer are missing the last one is repeated.
  FeatureStore(std::int64_t images, std::uint64_t budget, std::int64_t together = 1);
  // Features (n, P, d) of images `ids` (n, on the host), `pixels` (n, 3, S, S). An image that comes twice is looked at once.
  at::Tensor of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  [[nodiscard]] std::int64_t made() const noexcept { return made_; }  // images looked at so far, without repeats
  void forget();                                                      // another number format: other bits

 private:
  [[nodiscard]] at::Tensor kept(std::int64_t image) const;      // undefined where there is none
  at::Tensor keep(std::int64_t image, const at::Tensor& made);  // where it fits; what is now known of the image

  std::vector<at::Tensor> kept_;  // by image; undefined where there is none yet
  std::uint64_t budget_, bytes_ = 0;
  std::size_t together_;
  std::int64_t made_ = 0;
};

}  // namespace millrace::recipes::image_pairs
