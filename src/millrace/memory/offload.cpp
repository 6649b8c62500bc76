#include "millrace/memory/offload.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <unordered_set>

#include "millrace/memory/detail/saving.h"

namespace millrace::memory {
namespace {

// Where a tensor is until the backward pass: here, or in host memory.
struct Moved final : torch::autograd::SavedVariableHooks {
  Moved(c10::Device device, std::uint64_t least_bytes, const std::unordered_set<const void*>& stay, std::uint64_t& count)
      : device_(device), least_bytes_(least_bytes), stay_(stay), count_(count) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    const bool moves = tensor.device() == device_ && tensor.nbytes() >= least_bytes_ && !stay_.contains(tensor.storage().data());
    if (!moves) {
      kept_ = tensor.detach();
      return;
    }
    const auto options = tensor.options().device(at::kCPU).pinned_memory(!tensor.device().is_cpu());
    host_ = at::empty_like(tensor, options);
    host_.copy_(tensor, /*non_blocking=*/true);
    count_ += tensor.nbytes();
  }

  at::Tensor call_unpack_hook() override {
    return kept_.defined() ? kept_ : host_.to(device_, /*non_blocking=*/true, /*copy=*/true);
  }

 private:
  c10::Device device_;
  std::uint64_t least_bytes_;
  const std::unordered_set<const void*>& stay_;  // used while the scope lives
  std::uint64_t& count_;
  at::Tensor kept_, host_;
};

}  // namespace

struct OffloadScope::Impl final : detail::Saver {
  Impl(c10::Device from, std::uint64_t least, const std::vector<at::Tensor>& parameters)
      : device(from), least_bytes(least), saver(this) {
    for (const at::Tensor& parameter : parameters) stay.insert(parameter.storage().data());
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    return std::make_unique<Moved>(device, least_bytes, stay, moved);
  }
  c10::Device device;
  std::uint64_t least_bytes;
  std::unordered_set<const void*> stay;
  std::uint64_t moved = 0;
  detail::SaverScope saver;
};

OffloadScope::OffloadScope(c10::Device device, std::uint64_t least_bytes, const std::vector<at::Tensor>& parameters)
    : impl_(std::make_unique<Impl>(device, least_bytes, parameters)) {}

OffloadScope::~OffloadScope() = default;

std::uint64_t OffloadScope::moved_bytes() const noexcept { return impl_->moved; }

}  // namespace millrace::memory
