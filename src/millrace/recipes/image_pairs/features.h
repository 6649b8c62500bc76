// What a frozen vision tower says of images, kept over the epochs of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::recipes::image_pairs {

// A frozen tower looks at one image at a time, so that what it says of an image does not depend on the batch that it came in:
// kept or made anew, in a resumed run or not, features are the same bits. Belongs to the loop's thread.
class FeatureStore {
 public:
  using Make = std::function<at::Tensor(const at::Tensor& pixels)>;  // (1, 3, S, S) -> (1, P, d)

  // Keeps at most `budget` bytes of features of images numbered 0..images-1; 0 = nothing.
  FeatureStore(std::int64_t images, std::uint64_t budget);
  // Features (n, P, d) of images `ids` (n, on the host), `pixels` (n, 3, S, S). An image that comes twice is looked at once.
  at::Tensor of(const std::vector<std::int64_t>& ids, const at::Tensor& pixels, const Make& make);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
  [[nodiscard]] std::int64_t made() const noexcept { return made_; }  // looks so far
  void forget();                                                      // another number format: other bits

 private:
  std::vector<at::Tensor> kept_;  // by image; undefined where there is none yet
  std::uint64_t budget_, bytes_ = 0;
  std::int64_t made_ = 0;
};

}  // namespace millrace::recipes::image_pairs
