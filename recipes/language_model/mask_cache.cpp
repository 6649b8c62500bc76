#include "recipes/language_model/mask_cache.h"

#include <ATen/ops/ones.h>

#include "millrace/core/random.h"

namespace millrace::recipes::language_model {

at::Tensor make_causal_mask(std::int64_t length, at::Device device) {
  return at::ones({length, length}, at::TensorOptions().dtype(at::kBool).device(device)).tril();
}

at::Tensor MaskCache::causal(std::int64_t length, at::Device device) {
  if (RandomScope::is_recorded())
    return make_causal_mask(length, device);  // a recorded step needs its mask longer than this cache may keep the mask
  for (const at::Tensor& mask : masks_) {
    if (mask.size(0) == length && mask.device() == device) return mask;
  }
  masks_.push_front(make_causal_mask(length, device));
  if (masks_.size() > kCapacity) masks_.pop_back();
  return masks_.front();
}

std::int64_t MaskCache::bytes() const noexcept {
  std::int64_t sum = 0;
  for (const at::Tensor& mask : masks_) sum += static_cast<std::int64_t>(mask.nbytes());
  return sum;
}

}  // namespace millrace::recipes::language_model
