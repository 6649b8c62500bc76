// The results of the kernels by ATen's own operations: for tensors that the kernels do not support (fp64, CUDA, ...) and for the
// plain path of the switches.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// x with dropout, by ATen operations and a given keep mask (bool, of x's shape, on its device); equal to dropout() to the bit.
at::Tensor dropout_with_mask(const at::Tensor& x, const at::Tensor& keep, double p);

// causal_attention by ATen operations, with a keep mask (B, H, T, T) or undefined; any floating type and device.
at::Tensor causal_attention_with_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& keep,
                                      double p, std::optional<double> scale = {});

// The keep mask of a site as the kernels draw it, made on the requested device: by a kernel, or by composed_mask() on a device
// without kernels. dropout_mask_reference draws the same from the scalar reference.
at::Tensor dropout_mask(at::IntArrayRef sizes, const Dropout& dropout, c10::Device device = at::kCPU);
// dropout_mask() by LibTorch's operations on 64-bit integers only: about 150 small ones, for any device.
at::Tensor composed_mask(at::IntArrayRef sizes, const Dropout& dropout, c10::Device device);

}  // namespace millrace::kernels
