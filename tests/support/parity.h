// How far a tensor is from the one that Python computed.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

namespace millrace {

// The largest difference between two elements at the same position.
inline double difference(const at::Tensor& ours, const at::Tensor& theirs) { return (ours - theirs).abs().max().item<double>(); }

// difference(), relative to the largest element of `theirs`, or to `least` if that is larger, because single elements near zero
// carry no relative precision.
inline double relative(const at::Tensor& ours, const at::Tensor& theirs, double least = 1e-6) {
  return difference(ours, theirs) / std::max(theirs.abs().max().item<double>(), least);
}

}  // namespace millrace
