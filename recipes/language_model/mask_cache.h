// Keeps the causal masks that the explicit attention path needs, by length and device. A mask depends only on its length, and a
// model needs the same few masks again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>

namespace millrace::recipes::language_model {

// Not thread-safe, because it belongs to one model. The cache is not part of the model's state.
class MaskCache {
 public:
  static constexpr std::size_t kCapacity = 16;  // if the cache is full, a new mask replaces the oldest

  // A boolean mask (length, length), true where the query of the row may attend to the key of the column. Made once for each
  // length and device.
  at::Tensor causal(std::int64_t length, at::Device device);
  void clear() noexcept { masks_.clear(); }
  [[nodiscard]] std::size_t size() const noexcept { return masks_.size(); }
  [[nodiscard]] std::int64_t bytes() const noexcept;

 private:
  std::list<at::Tensor> masks_;  // the newest first
};

// Makes the mask that MaskCache::causal() returns, without a cache.
[[nodiscard]] at::Tensor make_causal_mask(std::int64_t length, at::Device device);

}  // namespace millrace::recipes::language_model
