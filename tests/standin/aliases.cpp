#include "aliases.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "device_memory.h"
#include "streams.h"

namespace millrace::standin {

namespace {

at::Tensor over(c10::Storage memory, c10::DispatchKey key, const at::Tensor& tensor) {
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(memory), c10::DispatchKeySet(key), tensor.dtype());
  c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

}  // namespace

at::Tensor alias_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  void* const memory = for_kernels(tensor.storage().data());
  return over(c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                           c10::DataPtr(memory, c10::Device(c10::kCPU)), kernel_allocator(), /*resizable=*/true),
              c10::DispatchKey::CPU, tensor);
}

at::Tensor shape_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  return over(c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), c10::GetAllocator(c10::kMeta), true),
              c10::DispatchKey::Meta, tensor);
}

at::Tensor frozen(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) {
    const at::Tensor copy = tensor.clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
    return copy;
  }
  void* const memory = const_cast<void*>(tensor.storage().data());
  return over(c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(), c10::DataPtr(memory, tensor.device()),
                           device_allocator(), /*resizable=*/true),
              c10::DispatchKey::CUDA, tensor);
}

at::Tensor shaped_on_device(const at::Tensor& result, int device) {
  if (!result.defined() || result.is_cuda()) return result;
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  at::Tensor moved = at::detail::empty_strided_generic(result.sizes(), result.strides(), device_allocator(),
                                                       c10::DispatchKeySet(c10::DispatchKey::CUDA), result.scalar_type());
  if (result.unsafeGetTensorImpl()->is_wrapped_number()) moved.unsafeGetTensorImpl()->set_wrapped_number(true);
  return moved;
}

at::Tensor on_device(const at::Tensor& result, int device) {
  const at::Tensor moved = shaped_on_device(result, device);
  if (result.defined() && !result.is_cuda() && result.numel() > 0 && !result.is_meta()) alias_of(moved).copy_(result);
  return moved;
}

at::Tensor view_of(const at::Tensor& base, const at::Tensor& view) {
  at::Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), view.dtype());
  c10::TensorImpl* const impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
  if (view.is_conj()) impl->_set_conj(true);
  if (view.is_neg()) impl->_set_neg(true);
  return made;
}

void used(const at::Tensor& tensor, bool written, const std::string& name) {
  if (!tensor.defined() || !tensor.is_cuda() || tensor.numel() == 0 || computes_nothing()) return;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const std::byte* const begin = for_kernels(tensor.const_data_ptr());
  touch(tensor.get_device(), begin, begin + static_cast<std::size_t>(last + 1) * tensor.itemsize(), written, name);
}

void fill(const at::Tensor& tensor, const at::Tensor& result, const std::string& name) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  used(tensor, true, name);
  alias_of(tensor).copy_(result);
}

void blank(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_cuda() && tensor.storage().nbytes() > 0)
    std::memset(for_kernels(tensor.storage().data()), 0, tensor.storage().nbytes());
}

void follow(const at::Tensor& tensor, const at::Tensor& alias, bool only_shape) {
  c10::StorageImpl* const now = alias.storage().unsafeGetStorageImpl();
  c10::StorageImpl* const before = tensor.storage().unsafeGetStorageImpl();
  if (alias.is_meta() || only_shape) {
    if (now->nbytes() > before->nbytes()) {
      before->set_data_ptr(device_allocator()->allocate(now->nbytes()));
      before->set_nbytes(now->nbytes());
    }
  } else if (now->data() != for_kernels(before->data())) {
    before->set_data_ptr(as_device_pointer(now->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)))));
    before->set_nbytes(now->nbytes());
  }
  if (tensor.sizes() != alias.sizes() || tensor.strides() != alias.strides())
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
}

at::Tensor Scratch::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  std::shared_ptr<void>& memory = memory_[tensor.storage().data()];
  const std::size_t bytes = tensor.storage().nbytes();
  if (memory == nullptr && bytes > 0)
    memory.reset(std::calloc(bytes, 1), &std::free);  // pages that no kernel touches cost nothing
  c10::DataPtr pointer = c10::InefficientStdFunctionContext::makeDataPtr(
      memory.get(), [memory](void*) {}, c10::Device(c10::kCPU));
  at::Tensor made =
      over(c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(pointer), c10::GetAllocator(c10::kCPU), true),
           c10::DispatchKey::CPU, tensor);
  if (value_ != 0 && made.numel() > 0) made.fill_(value_);
  return made;
}

}  // namespace millrace::standin
