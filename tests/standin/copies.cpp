#include "copies.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <memory>
#include <vector>

#include "accounts.h"
#include "aliases.h"
#include "device_memory.h"
#include "streams.h"

namespace millrace::standin {
namespace {

const char* words(bool to_device) { return to_device ? "to the device" : "to the host"; }

bool lies_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.strides() == b.strides() && a.is_non_overlapping_and_dense() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

void count_copy(bool to_device, std::size_t bytes, bool pinned, bool blocking) {
  const std::string name = std::string(words(to_device)) + (pinned ? ", pinned" : ", pageable") + (blocking ? ", blocking" : "");
  count(to_device ? Count::to_device : Count::to_host, name);
  count_bytes(to_device, bytes);
  if (!pinned) count(Count::pageable_copies, name);
  if (blocking) count(Count::blocking_copies, name);
  if (!to_device && (blocking || !pinned)) count(Count::read_backs, name);
}

// The bytes of one side each, contiguous in the same order. A copy from pageable memory is over when the call returns, one to it
// makes the host wait.
void transfer(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool to_device = to.is_cuda();
  const int device = to_device ? to.get_device() : from.get_device();
  const std::size_t bytes = to.nbytes();
  void* const host = to_device ? const_cast<void*>(from.const_data_ptr()) : to.mutable_data_ptr();
  std::byte* const ours = for_kernels(to_device ? to.const_data_ptr() : from.const_data_ptr());
  const bool pinned = is_pinned(host);
  count_copy(to_device, bytes, pinned, !non_blocking);
  const std::string name = std::string("a copy ") + words(to_device);
  fail_if_lost("copy_");
  if (computes_nothing()) return;
  if (!non_blocking || !pinned) {
    in_order(device);
    used(to_device ? to : from, to_device, name);
    if (!non_blocking || !to_device) wait(current_stream(device), name);
    std::memcpy(to_device ? static_cast<void*>(ours) : host, to_device ? host : static_cast<void*>(ours), bytes);
    return;
  }
  if (to_device) {
    spoil(ours, bytes);
    copy_asynchronously(
        device, {.land = [=] { std::memcpy(ours, host, bytes); }, .host = host, .device = ours, .bytes = bytes, .deliver = {}});
    used(to, true, name);
    return;
  }
  spoil(host, bytes);
  const auto read = std::make_shared<std::vector<std::byte>>();
  copy_asynchronously(device, {.land = [=] { read->assign(ours, ours + bytes); },
                               .host = host,
                               .device = ours,
                               .bytes = bytes,
                               .to_device = false,
                               .deliver = [=] { std::memcpy(host, read->data(), bytes); }});
  used(from, false, name);
}

// What does not lie alike is made so on the side of the source: with its shape, the target's type and order.
void between(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (lies_alike(to, from)) return transfer(to, from, non_blocking);
  const at::Tensor target = to.is_non_overlapping_and_dense() && !to.is_conj() && !to.is_neg()
                                ? to
                                : at::empty_like(to, to.options(), at::MemoryFormat::Contiguous);
  const bool pinned = from.is_cpu() && is_pinned(from.const_data_ptr());
  at::Tensor source = at::empty_strided(from.sizes(), target.strides(),
                                        from.options().dtype(target.scalar_type()).pinned_memory(pinned && non_blocking));
  source.copy_(from);
  transfer(target, source, non_blocking);
  if (!target.is_same(to)) to.copy_(target);
}

}  // namespace

at::Tensor& copy(at::Tensor& to, const at::Tensor& given, bool non_blocking) {
  if (to.is_same(given) || to.numel() == 0) return to;
  const at::Tensor from = given.sizes() == to.sizes() ? given : given.expand(to.sizes());
  const int device = to.is_cuda() ? to.get_device() : from.get_device();
  const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)));
  if (to.is_cuda() && from.is_cuda()) {
    if (to.get_device() != from.get_device()) {
      wait(current_stream(from.get_device()), "copy_ between devices");
      count(Count::to_device, "between devices");
    }
    if (computes_nothing()) return to;
    launch(device, "aten::copy_");
    const at::AutoDispatchBelowADInplaceOrView below;
    used(from, false, "aten::copy_");
    used(to, true, "aten::copy_");
    alias_of(to).copy_(alias_of(from));
    return to;
  }
  between(to, from, non_blocking);
  return to;
}

}  // namespace millrace::standin
