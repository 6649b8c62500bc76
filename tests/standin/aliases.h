// Tensors of a device as kernels of the CPU see them: the same memory at the other address, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace millrace::standin {

// A tensor of the CPU over the memory of `tensor`, which stays alive as long as the caller holds it; another tensor is given as
// it is.
[[nodiscard]] at::Tensor alias_of(const at::Tensor& tensor);
// The same without memory, for kernels that compute nothing (streams.h).
[[nodiscard]] at::Tensor shape_of(const at::Tensor& tensor);
// Moves what a kernel made on the CPU into memory of `device`.
[[nodiscard]] at::Tensor on_device(const at::Tensor& result, int device);
// A tensor of the device that has the memory of `base` and the shape of `view`, which is an alias of a part of it.
[[nodiscard]] at::Tensor view_of(const at::Tensor& base, const at::Tensor& view);
// A kernel may have resized what it was given: the device's tensor becomes as its alias is.
void follow(const at::Tensor& tensor, const at::Tensor& alias);
// Zeros in all of its memory, as before a kernel that was to compute nothing wrote to it.
void blank(const at::Tensor& tensor);
// The operation that was launched last reads or writes it.
void used(const at::Tensor& tensor, bool written, const std::string& name);

}  // namespace millrace::standin
