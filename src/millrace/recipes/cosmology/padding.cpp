#include "millrace/recipes/cosmology/padding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kFirstAxis = 2;  // (N, channels, R, f, bl)
constexpr std::int64_t kMultiple = 4;

std::vector<std::int64_t> places_of(std::int64_t length, std::int64_t added, Padding padding) {
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < length; ++i) places.push_back(i);
  for (std::int64_t i = 0; i < added; ++i) {
    const std::int64_t behind = std::max<std::int64_t>(0, length - 1 - i);         // mirrors the end
    const std::int64_t ahead = std::min<std::int64_t>(length - 1, added - 1 - i);  // mirrors the beginning, which follows
    places.push_back(padding == Padding::circular ? i % length : i < (added + 1) / 2 ? behind : ahead);
  }
  return places;
}

}  // namespace

at::Tensor padded(const at::Tensor& volumes, Padding padding) {
  at::Tensor result = volumes;
  for (std::int64_t axis = kFirstAxis; axis < volumes.dim(); ++axis) {
    const std::int64_t length = volumes.size(axis);
    const std::int64_t added = (kMultiple - length % kMultiple) % kMultiple;
    if (added == 0) continue;
    MR_CHECK(padding != Padding::none, "a length that does not divide by 4 without padding");
    const at::Tensor places = at::tensor(places_of(length, added, padding), at::kLong).to(volumes.device());
    result = at::index_select(result, axis, places);
  }
  return result;
}

at::Tensor unpadded(const at::Tensor& volumes, const at::Tensor& like) {
  at::Tensor result = volumes;
  for (std::int64_t axis = kFirstAxis; axis < like.dim(); ++axis) {
    if (result.size(axis) != like.size(axis)) result = result.narrow(axis, 0, like.size(axis));
  }
  return result.contiguous();
}

}  // namespace millrace::recipes::cosmology
