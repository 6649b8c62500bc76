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
#include "operations.h"
#include "recorder.h"
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

struct Bytes {
  at::Tensor tensor;  // the device's side
  void* host = nullptr;
  bool to_device = true;
};

// Both sides hold garbage until the copy lands.
void start(const Bytes& what, const std::string& name) {
  std::byte* const ours = for_kernels(what.tensor.const_data_ptr());
  void* const host = what.host;
  const std::size_t bytes = what.tensor.nbytes();
  const int device = what.tensor.get_device();
  if (what.to_device) {
    spoil(ours, bytes);
    copy_asynchronously(
        device, {.land = [=] { std::memcpy(ours, host, bytes); }, .host = host, .device = ours, .bytes = bytes, .deliver = {}});
    return used(what.tensor, true, name);
  }
  spoil(host, bytes);
  const auto read = std::make_shared<std::vector<std::byte>>();
  copy_asynchronously(device, {.land = [=] { read->assign(ours, ours + bytes); },
                               .host = host,
                               .device = ours,
                               .bytes = bytes,
                               .to_device = false,
                               .deliver = [=] { std::memcpy(host, read->data(), bytes); }});
  used(what.tensor, false, name);
}

// A replay reads and writes the host's memory that is there then.
void add_to(Recorder& open, Bytes what, const std::string& name) {
  open.needs(what.tensor.const_data_ptr());
  what.tensor = frozen(what.tensor);
  open.add([what, name] {
    if (!is_pinned(what.host)) mistake("a replay needs page-locked memory that is gone, for " + name);
    count_copy(what.to_device, what.tensor.nbytes(), true, false);
    start(what, name);
  });
}

// The bytes of one side each, contiguous in the same order. A copy from pageable memory is over when the call returns, one to it
// makes the host wait.
void transfer(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const bool to_device = to.is_cuda();
  const int device = to_device ? to.get_device() : from.get_device();
  void* const host = to_device ? const_cast<void*>(from.const_data_ptr()) : to.mutable_data_ptr();
  const at::Tensor& there = to_device ? to : from;
  const bool pinned = is_pinned(host);
  const std::string name = std::string("a copy ") + words(to_device);
  refuse_stray(device, name);
  Recorder* const open = recorder(device);
  if (open == nullptr || !pinned || !non_blocking) count_copy(to_device, there.nbytes(), pinned, !non_blocking);
  fail_if_lost("copy_");
  if (computes_nothing()) return;
  if (non_blocking && pinned) {
    const Bytes what{.tensor = there, .host = host, .to_device = to_device};
    return open != nullptr ? add_to(*open, what, name) : start(what, name);
  }
  in_order(device);
  used(there, to_device, name);
  if (!non_blocking || !to_device) wait(current_stream(device), name);
  void* const ours = for_kernels(there.const_data_ptr());
  std::memcpy(to_device ? ours : host, to_device ? host : ours, there.nbytes());
}

// What does not lie alike is made so on the side of the source: with its shape, the target's type and order.
void between(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (lies_alike(to, from)) return transfer(to, from, non_blocking);
  const at::Tensor target = to.is_non_overlapping_and_dense() && !to.is_conj() && !to.is_neg()
                                ? to
                                : at::empty_like(to, to.options(), at::MemoryFormat::Contiguous);
  if (from.is_cpu() || !target.is_same(to)) refuse_in_recording("a copy between types or layouts, which the host prepares");
  const bool pinned = from.is_cpu() && is_pinned(from.const_data_ptr());
  at::Tensor source = at::empty_strided(from.sizes(), target.strides(),
                                        from.options().dtype(target.scalar_type()).pinned_memory(pinned && non_blocking));
  source.copy_(from);
  transfer(target, source, non_blocking);
  if (!target.is_same(to)) to.copy_(target);
}

void within(const at::Tensor& to, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView below;
  used(from, false, "aten::copy_");
  used(to, true, "aten::copy_");
  alias_of(to).copy_(alias_of(from));
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
    list_operation("aten::copy_", {from}, {to});
    if (computes_nothing()) return to;
    launch(device, "aten::copy_");
    Recorder* const open = recorder(device);
    if (open == nullptr) return within(to, from), to;
    for (const at::Tensor& each : {to, from}) open->needs(each.storage().data());
    open->add([to = frozen(to), from = frozen(from)] {
      in_order(to.get_device());
      within(to, from);
    });
    return to;
  }
  between(to, from, non_blocking);
  return to;
}

}  // namespace millrace::standin
