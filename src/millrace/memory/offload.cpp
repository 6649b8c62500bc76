#include "millrace/memory/offload.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <deque>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/device/copies.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/memory/detail/saving.h"

namespace millrace::memory {
namespace {

// A tensor from the forward to the backward pass: in host memory, and on its way out or back.
struct Item {
  at::Tensor host;
  at::Tensor back;                  // on the device again, before the backward pass asks for it
  device::Copies::MarkPtr arrived;  // of `back`
};

// What one scope has moved, in the order of the forward pass. The backward pass asks from the last to the first, in a thread of
// LibTorch's.
class Shelf {
 public:
  Shelf(c10::Device device, std::unique_ptr<device::Copies> copies) : device_(device), copies_(std::move(copies)) {}

  Item* put(const at::Tensor& tensor) {
    auto item = std::make_unique<Item>();
    item->host = at::empty_like(tensor, tensor.options().device(at::kCPU).pinned_memory(copies_ != nullptr));
    const std::lock_guard lock(mutex_);
    if (copies_ == nullptr) {
      item->host.copy_(tensor);
    } else {
      copies_->hold_copies(*copies_->mark_work());
      copies_->copy(item->host, tensor);
      leaving_.push_back({tensor.storage(), copies_->mark_copies()});
      if (leaving_.size() > kLeaving) let_go(1);
    }
    items_.push_back(std::move(item));
    return items_.back().get();
  }

  at::Tensor take(Item* item) {
    const std::lock_guard lock(mutex_);
    if (copies_ == nullptr) return item->host.to(device_, /*non_blocking=*/false, /*copy=*/true);
    if (!item->back.defined()) fetch(*item);
    copies_->hold_work(*item->arrived);
    item->arrived.reset();
    at::Tensor back = std::exchange(item->back, at::Tensor());
    fetch_before(item);
    return back;
  }

  // The graph no longer needs it.
  void forget(Item* item) noexcept {
    const std::lock_guard lock(mutex_);
    release(*item);
    std::erase_if(items_, [&](const std::unique_ptr<Item>& one) { return one.get() == item; });
  }

  void forward_ended() noexcept {
    const std::lock_guard lock(mutex_);
    try {
      let_go(leaving_.size());
    } catch (const std::exception&) {  // of a lost device, where nothing is under way any more
    }
  }

 private:
  struct Leaving {
    c10::Storage memory;
    device::Copies::MarkPtr copied;
  };
  // So many tensors may be on their way out beside the work. The next one makes the work wait for the oldest: from then on its
  // memory can be anybody's, and the host, which is far ahead, waits for nothing.
  static constexpr std::size_t kLeaving = 2;
  static constexpr std::size_t kAhead = 2;                             // tensors fetched before they are asked for ...
  static constexpr std::size_t kAheadBytes = std::size_t{256} << 20U;  // ... and so many bytes

  void let_go(std::size_t count) {
    if (count == 0) return;
    copies_->hold_work(*leaving_[count - 1].copied);
    leaving_.erase(leaving_.begin(), leaving_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void fetch(Item& item) {
    item.back = at::empty_like(item.host, item.host.options().device(device_).pinned_memory(false));
    copies_->hold_copies(*copies_->mark_work());  // of who had this memory before
    copies_->copy(item.back, item.host);
    item.arrived = copies_->mark_copies();
  }

  void fetch_before(const Item* item) {
    std::size_t ahead = 0, bytes = 0;
    auto at = items_.begin();
    while (at != items_.end() && at->get() != item) ++at;
    try {
      while (at != items_.begin() && ahead < kAhead) {
        Item& next = **--at;
        bytes += next.host.nbytes();
        if (bytes > kAheadBytes) return;
        if (!next.back.defined()) fetch(next);
        ++ahead;
      }
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error)) throw;  // else it comes when it must
    }
  }

  // Its memory on the device goes back to the work, which must not overtake the copy into it.
  void release(Item& item) noexcept {
    if (!item.arrived) return;
    try {
      copies_->hold_work(*item.arrived);
    } catch (const std::exception&) {  // of a lost device
    }
  }

  const c10::Device device_;
  std::mutex mutex_;                              // guards what follows
  const std::unique_ptr<device::Copies> copies_;  // null: the device's tensors are host memory
  std::vector<std::unique_ptr<Item>> items_;
  std::deque<Leaving> leaving_;
};

// Where a tensor is until the backward pass: here, or on the shelf.
struct Moved final : torch::autograd::SavedVariableHooks {
  Moved(std::shared_ptr<Shelf> shelf, c10::Device device, std::uint64_t least_bytes, const std::unordered_set<const void*>& stay,
        std::uint64_t& count)
      : shelf_(std::move(shelf)), device_(device), least_bytes_(least_bytes), stay_(stay), count_(count) {}
  ~Moved() override {
    if (item_ != nullptr) shelf_->forget(item_);
  }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override {
    const bool moves = tensor.device() == device_ && tensor.nbytes() >= least_bytes_ && !stay_.contains(tensor.storage().data());
    if (!moves) {
      kept_ = tensor.detach();
      return;
    }
    item_ = shelf_->put(tensor.detach());
    count_ += tensor.nbytes();
  }

  at::Tensor call_unpack_hook() override { return kept_.defined() ? kept_ : shelf_->take(item_); }

 private:
  std::shared_ptr<Shelf> shelf_;
  c10::Device device_;
  std::uint64_t least_bytes_;
  const std::unordered_set<const void*>& stay_;  // used while the scope lives
  std::uint64_t& count_;
  at::Tensor kept_;
  Item* item_ = nullptr;
};

}  // namespace

struct OffloadScope::Impl final : detail::Saver {
  Impl(c10::Device from, std::uint64_t least, const std::vector<at::Tensor>& parameters)
      : device(from), least_bytes(least), shelf(std::make_shared<Shelf>(from, device::copies_of(from))), saver(this) {
    for (const at::Tensor& parameter : parameters) stay.insert(parameter.storage().data());
  }
  ~Impl() override { shelf->forward_ended(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    return std::make_unique<Moved>(shelf, device, least_bytes, stay, moved);
  }
  c10::Device device;
  std::uint64_t least_bytes;
  std::unordered_set<const void*> stay;
  std::uint64_t moved = 0;
  std::shared_ptr<Shelf> shelf;
  detail::SaverScope saver;
};

OffloadScope::OffloadScope(c10::Device device, std::uint64_t least_bytes, const std::vector<at::Tensor>& parameters)
    : impl_(std::make_unique<Impl>(device, least_bytes, parameters)) {}

OffloadScope::~OffloadScope() = default;

std::uint64_t OffloadScope::moved_bytes() const noexcept { return impl_->moved; }

}  // namespace millrace::memory
