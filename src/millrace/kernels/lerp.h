// Moves many tensors toward others, as a running mean of weights does.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace millrace::kernels {

// averages[i] += weight * (values[i] - averages[i]), as averages[i].lerp_(values[i], weight). Both lists have the same length
// and shapes. `weight`: a scalar on the tensors' device, which is converted to the type of each tensor. A device's own kernel
// takes up to 64 pairs of dense f32 tensors in a launch. at::lerp_ computes pairs of other types or strides, and all pairs on a
// CPU. Not differentiable.
void lerp(at::TensorList averages, at::TensorList values, const at::Tensor& weight);

}  // namespace millrace::kernels
