// Causal masks of the explicit attention path, cached by length and device. A mask is a function of its length alone, and a model
// needs the same few again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <list>

namespace millrace::recipes::language_model {

// Not thread-safe: belongs to one model. Not part of a model's state.
class MaskCache {
 public:
  static constexpr std::size_t kCapacity = 16;  // a further mask replaces the oldest

  // Boolean (length, length), true where query row may attend to key column. Made once per (length, device).
  at::Tensor causal(std::int64_t length, at::Device device);
  void clear() noexcept { masks_.clear(); }
  [[nodiscard]] std::size_t size() const noexcept { return masks_.size(); }
  [[nodiscard]] std::int64_t bytes() const noexcept;

 private:
  std::list<at::Tensor> masks_;  // newest first
};

// The same mask, without a cache.
[[nodiscard]] at::Tensor make_causal_mask(std::int64_t length, at::Device device);

}  // namespace millrace::recipes::language_model
