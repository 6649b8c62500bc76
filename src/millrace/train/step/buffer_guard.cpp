#include "millrace/train/step/buffer_guard.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <map>

namespace millrace {
namespace {

at::Tensor joined(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

std::vector<at::Tensor> pieces_of(const at::Tensor& flat, const std::vector<at::Tensor>& like) {
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& tensor : like) sizes.push_back(tensor.numel());
  std::vector<at::Tensor> pieces = flat.split_with_sizes(sizes);
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = pieces[i].view(like[i].sizes());
  return pieces;
}

}  // namespace

BufferGuard::BufferGuard(std::vector<at::Tensor> buffers) {
  for (at::Tensor& buffer : buffers) entries_.push_back({.buffer = buffer.detach()});
}

void BufferGuard::begin() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    if (begun_ && entry.buffer._version() == entry.version) continue;
    if (entry.kept.defined()) {
      entry.kept.copy_(entry.buffer);
    } else {
      entry.kept = entry.buffer.clone();
    }
    entry.version = entry.buffer._version();
  }
  begun_ = true;
  trusts_counters_ = true;
}

void BufferGuard::put_back() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    if (trusts_counters_ && entry.buffer.numel() > kSmall && entry.buffer._version() == entry.version) continue;
    entry.buffer.copy_(entry.kept);
    entry.version = entry.buffer._version();
  }
  trusts_counters_ = true;
}

// Ends a step. Launches a few operations for each dtype, however many buffers there are.
void BufferGuard::settle(const at::Tensor& skip) {
  const at::NoGradGuard no_grad;
  const at::Tensor back = skip.to(at::kBool);
  std::map<at::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> lists;
  for (const Entry& entry : entries_) {
    if (trusts_counters_ && entry.buffer.numel() > kSmall && entry.buffer._version() == entry.version) continue;
    auto& [buffers, kept] = lists[entry.buffer.scalar_type()];
    buffers.push_back(entry.buffer);
    kept.push_back(entry.kept);
  }
  for (auto& [dtype, list] : lists) {
    auto& [buffers, kept] = list;
    const at::Tensor chosen = at::where(back, joined(kept), joined(buffers));
    const std::vector<at::Tensor> pieces = pieces_of(chosen, buffers);
    at::_foreach_copy_(buffers, pieces);
    at::_foreach_copy_(kept, pieces);
  }
  for (Entry& entry : entries_) entry.version = entry.buffer._version();
}

std::vector<at::Tensor> BufferGuard::moving() const {
  std::vector<at::Tensor> list;
  for (const Entry& entry : entries_) {
    if (entry.buffer.numel() <= kSmall || (begun_ && entry.buffer._version() != entry.version)) list.push_back(entry.buffer);
  }
  return list;
}

}  // namespace millrace
