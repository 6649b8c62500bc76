#include "recipes/cosmology/padding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include "millrace/base/error.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kFirstAxis = 2;  // the first axis that is padded, of (N, channels, R, f, bl)
constexpr std::int64_t kMultiple = 4;

// Extends an axis of `length` places by `added` places. Returns, for each place of the longer axis, the place of the original
// axis that supplies its value. Computed on the device of the volumes, because copying a list from the host would wait for the
// device.
at::Tensor places_of(std::int64_t length, std::int64_t added, Padding padding, const at::TensorOptions& options) {
  if (padding == Padding::circular) return at::arange(length + added, options).remainder(length);
  const std::int64_t half = (added + 1) / 2;
  const at::Tensor behind = (length - 1 - at::arange(half, options)).clamp_min(0);  // mirrors the end of the axis
  const at::Tensor ahead =
      // mirrors the beginning, which comes next in a circular convolution
      (added - 1 - at::arange(half, added, options)).clamp_max(length - 1);
  return at::cat({at::arange(length, options), behind, ahead});
}

}  // namespace

at::Tensor padded(const at::Tensor& volumes, Padding padding) {
  at::Tensor result = volumes;
  for (std::int64_t axis = kFirstAxis; axis < volumes.dim(); ++axis) {
    const std::int64_t length = volumes.size(axis);
    const std::int64_t added = (kMultiple - length % kMultiple) % kMultiple;
    if (added == 0) continue;
    MR_CHECK(padding != Padding::none, "a length that is not a multiple of 4 without padding");
    const auto options = at::TensorOptions(at::kLong).device(volumes.device());
    result = at::index_select(result, axis, places_of(length, added, padding, options));
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
