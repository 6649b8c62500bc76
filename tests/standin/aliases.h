// Tensors of a device as CPU kernels see them: the same memory at the other address, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace millrace::standin {

// A CPU tensor over the memory of `tensor`, which stays alive as long as the caller holds it; a tensor of no device is returned
// unchanged.
[[nodiscard]] at::Tensor alias_of(const at::Tensor& tensor);
// The same without memory, for kernels that compute nothing (streams.h).
[[nodiscard]] at::Tensor shape_of(const at::Tensor& tensor);
// Moves a kernel's result on the CPU into memory of `device`.
[[nodiscard]] at::Tensor on_device(const at::Tensor& result, int device);
// A tensor of the device with the memory of `base` and the shape of `view`, which is an alias of a part of it.
[[nodiscard]] at::Tensor view_of(const at::Tensor& base, const at::Tensor& view);
// Gives the device's tensor the shape of its alias, which a kernel may have resized.
void follow(const at::Tensor& tensor, const at::Tensor& alias);
// Fills all of its memory with zeros, as before a kernel that is meant to compute nothing wrote to it.
void blank(const at::Tensor& tensor);
// Records that the last launched operation reads or writes it.
void used(const at::Tensor& tensor, bool written, const std::string& name);

}  // namespace millrace::standin
