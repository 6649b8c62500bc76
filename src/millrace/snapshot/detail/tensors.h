// Converts between LibTorch's tensors and bytes on disk.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace millrace::snapshot::detail {

// Returns the tensor itself if it is dense, contiguous and on the CPU; otherwise a dense, contiguous copy on the CPU. The result
// has no gradient.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);
// Returns the memory of `host`, a tensor that on_host() returned.
[[nodiscard]] std::span<std::byte> bytes_of(const at::Tensor& host);

}  // namespace millrace::snapshot::detail
