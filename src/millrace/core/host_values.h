// The values of a tensor as plain C++ numbers: for pictures, texts and files.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace millrace {

// Returns the values in the order of the dimensions, the last dimension fastest. T is float, double or std::int64_t. Waits for
// the device, so don't call it in a step.
template <class T>
[[nodiscard]] std::vector<T> host_values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  const T* const first = flat.template const_data_ptr<T>();
  return {first, first + flat.numel()};
}

}  // namespace millrace
