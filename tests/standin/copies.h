// copy_() between the host and a stand-in device, between devices and within one; each kind is counted separately.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::standin {

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);

}  // namespace millrace::standin
