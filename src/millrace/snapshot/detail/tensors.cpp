#include "millrace/snapshot/detail/tensors.h"

#include <ATen/ops/resolve_conj.h>
#include <ATen/ops/resolve_neg.h>

#include "millrace/base/error.h"

namespace millrace::snapshot::detail {

at::Tensor on_host(const at::Tensor& tensor) {
  return at::resolve_neg(at::resolve_conj(tensor.detach())).to(at::kCPU).contiguous();
}

std::span<std::byte> bytes_of(const at::Tensor& host) {
  MR_CHECK(host.is_contiguous() && host.is_cpu(), "a tensor whose bytes are read must be contiguous and on the CPU");
  return {static_cast<std::byte*>(host.data_ptr()), host.nbytes()};
}

}  // namespace millrace::snapshot::detail
