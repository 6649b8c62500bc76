// Tensors of a device as CPU kernels see them: the same memory at the other address, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

namespace millrace::standin {

// A CPU tensor over the memory of `tensor`, which stays alive as long as the caller holds it; a tensor of no device is returned
// unchanged.
[[nodiscard]] at::Tensor alias_of(const at::Tensor& tensor);
// The same without memory, for kernels that compute nothing (streams.h).
[[nodiscard]] at::Tensor shape_of(const at::Tensor& tensor);
// The device's tensor as it is now, for later: a tensor of the same memory that does not keep it alive. A tensor of the host,
// which a kernel is given by value, is copied.
[[nodiscard]] at::Tensor frozen(const at::Tensor& tensor);
// Moves a kernel's result on the CPU into memory of `device`.
[[nodiscard]] at::Tensor on_device(const at::Tensor& result, int device);
// The same without the result's values.
[[nodiscard]] at::Tensor shaped_on_device(const at::Tensor& result, int device);
// A tensor of the device with the memory of `base` and the shape of `view`, which is an alias of a part of it.
[[nodiscard]] at::Tensor view_of(const at::Tensor& base, const at::Tensor& view);
// Gives the device's tensor the shape of its alias, which a kernel may have resized; the alias is of the same memory, or with
// `only_shape` of other memory.
void follow(const at::Tensor& tensor, const at::Tensor& alias, bool only_shape = false);
// Fills all of its memory with zeros, as before a kernel that is meant to compute nothing wrote to it.
void blank(const at::Tensor& tensor);
// Writes a kernel's result into the memory that the device's tensor, of the same sizes, has for it.
void fill(const at::Tensor& tensor, const at::Tensor& result, const std::string& name);
// Records that the last launched operation reads or writes it.
void used(const at::Tensor& tensor, bool written, const std::string& name);

// CPU tensors with the shapes of a device's tensors and none of their values, on which a kernel shows the shapes of its results.
class Scratch {
 public:
  explicit Scratch(int value) : value_(value) {}  // of all elements, 0 or 1: also an index in its range
  // Tensors that share memory have aliases that share memory; a tensor of no device is returned unchanged.
  [[nodiscard]] at::Tensor of(const at::Tensor& tensor);

 private:
  int value_;
  std::map<const void*, std::shared_ptr<void>> memory_;  // by the address of a storage
};

// Calls `kernel` with a scratch of zeros, and where it throws once more with one of ones: no index may be out of range, and no
// divisor zero. What it throws then goes on.
template <typename F>
auto on_scratch(F&& kernel) {
  Scratch zeros(0);
  try {
    return kernel(zeros);
  } catch (const std::exception&) {
    Scratch ones(1);
    return kernel(ones);
  }
}

}  // namespace millrace::standin
