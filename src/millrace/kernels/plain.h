// Computes the kernels' results by ATen's operations, for tensors that the kernels do not support (fp64, CUDA, ...) and for
// operations whose switch is off.
#pragma once

#include <ATen/core/Tensor.h>

#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

// Dropout of x by ATen's operations with a given keep mask (bool, of x's shape, on its device); equal to dropout() to the bit.
at::Tensor dropout_with_mask(const at::Tensor& x, const at::Tensor& keep, double p);

// causal_attention() by ATen's operations with a keep mask (B, H, T, T), which may be undefined; any floating type and device.
at::Tensor causal_attention_with_mask(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& keep,
                                      double p, std::optional<double> scale = {});

// Returns the keep mask of a site, equal to the mask that the kernels apply. A kernel makes it on `device`; if the device has no
// kernels, composed_mask() does. dropout_mask_reference() draws the same mask by the scalar reference.
at::Tensor dropout_mask(at::IntArrayRef sizes, const Dropout& dropout, c10::Device device = at::kCPU);
// dropout_mask() by about 150 small operations of LibTorch on 64-bit integers, for any device.
at::Tensor composed_mask(at::IntArrayRef sizes, const Dropout& dropout, c10::Device device);

}  // namespace millrace::kernels
