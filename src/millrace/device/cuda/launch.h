// What launches have in common: for .cu files alone.
#pragma once

#include <cuda_runtime_api.h>

#include "millrace/kernels/device_types.h"

namespace millrace::device {

using kernels::Piece;
using kernels::with_types;

}  // namespace millrace::device
