// Helpers for launches. Only .cu files include this header.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_types.h"

namespace millrace::device {

using kernels::Piece;
using kernels::with_types;

// Returns to each of a warp's 32 lanes the sum of `value` over these lanes. All lanes must take part.
__device__ inline float over_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  return value;
}

}  // namespace millrace::device
