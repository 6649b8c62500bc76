#include "millrace/memory/offload.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/device/copies.h"
#include "millrace/device/errors.h"
#include "millrace/device/tensor_memory.h"
#include "millrace/memory/detail/saving.h"

namespace millrace::memory {
namespace {

// The memory of one or several saved tensors. The memory is copied once, even if several tensors are views of it. The memory
// comes back with the same layout, so that kernels see the same input.
struct Item {
  c10::weak_intrusive_ptr<c10::StorageImpl> of;
  std::uint32_t version = 0;  // the version of the values that were copied
  int users = 0;
  at::Tensor host;
  at::Tensor back;                  // copied back to the device before the backward pass needs it
  device::Copies::MarkPtr arrived;  // reached when `back` is complete; null once the device's work waits for this mark
};

at::Tensor bytes_of(const c10::Storage& storage, c10::Device device) {
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  return at::empty({0}, at::TensorOptions(at::kByte).device(device)).set_(storage, 0, {bytes}, {1});
}

// Tensors that one scope moved, in the order in which the forward pass last saved them. The backward pass needs them from the
// last to the first, in a thread of LibTorch.
class Shelf {
 public:
  using Place = std::list<Item>::iterator;

  Shelf(c10::Device device, std::unique_ptr<device::Copies> copies) : device_(device), copies_(std::move(copies)) {}

  Place put(const at::Tensor& tensor, std::uint32_t version, std::uint64_t& moved_bytes) {
    const c10::Storage& storage = tensor.storage();
    const std::lock_guard lock(mutex_);
    const auto known = known_.find(storage.unsafeGetStorageImpl());
    if (known != known_.end() && known->second->version == version) {
      items_.splice(items_.end(), items_, known->second);
      ++known->second->users;
      return known->second;
    }
    const Place place = items_.insert(items_.end(), Item{storage.getWeakStorageImpl(), version, 1, {}, {}, {}});
    const at::Tensor all = bytes_of(storage, device_);
    place->host = at::empty(all.sizes(), at::TensorOptions(at::kByte).pinned_memory(copies_ != nullptr));
    if (copies_ == nullptr) {
      place->host.copy_(all);
    } else {
      copies_->hold_copies(*copies_->mark_work());
      copies_->copy(place->host, all);
      leaving_.push_back({storage, copies_->mark_copies()});
      if (leaving_.size() > kLeaving) let_go(1);
    }
    known_.insert_or_assign(storage.unsafeGetStorageImpl(), place);
    moved_bytes += storage.nbytes();
    return place;
  }

  c10::Storage take(Place item) {
    const std::lock_guard lock(mutex_);
    if (!item->back.defined()) fetch(*item);
    if (item->arrived) copies_->hold_work(*item->arrived);
    item->arrived.reset();
    fetch_before(item);
    return item->back.storage();
  }

  // Called when a part of the graph that used the item is destroyed.
  void forget(Place item) noexcept {
    const std::lock_guard lock(mutex_);
    if (--item->users > 0) return;
    release(*item);
    std::erase_if(known_, [&](const auto& entry) { return entry.second == item; });
    items_.erase(item);
  }

  void forward_ended() noexcept {
    const std::lock_guard lock(mutex_);
    known_.clear();
    for (Item& item : items_) item.of.reset();
    try {
      let_go(leaving_.size());
    } catch (const std::exception&) {  // the device is lost, and its copies have ended
    }
  }

 private:
  struct Leaving {
    c10::Storage memory;
    device::Copies::MarkPtr copied;
  };
  // The largest number of copies to the host at a time. The next copy makes the device's work wait for the oldest copy, so that
  // the memory of that copy can be reused. The host does not wait.
  static constexpr std::size_t kLeaving = 2;
  // At most this many items, and this many bytes, are copied back before they are needed.
  static constexpr std::size_t kAhead = 2;
  static constexpr std::size_t kAheadBytes = std::size_t{256} << 20U;

  void let_go(std::size_t count) {
    if (count == 0) return;
    copies_->hold_work(*leaving_[count - 1].copied);
    leaving_.erase(leaving_.begin(), leaving_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void fetch(Item& item) {
    if (copies_ == nullptr) {
      item.back = item.host.clone();
      return;
    }
    item.back = at::empty(item.host.sizes(), at::TensorOptions(at::kByte).device(device_));
    copies_->hold_copies(*copies_->mark_work());  // waits until earlier work that used this memory is done
    copies_->copy(item.back, item.host);
    item.arrived = copies_->mark_copies();
  }

  void fetch_before(Place item) {
    if (copies_ == nullptr) return;
    std::size_t ahead = 0, bytes = 0;
    try {
      while (item != items_.begin() && ahead < kAhead) {
        --item;
        bytes += item->host.nbytes();
        if (bytes > kAheadBytes) return;
        if (!item->back.defined()) fetch(*item);
        ++ahead;
      }
    } catch (const std::exception& error) {
      if (!device::is_out_of_memory(error)) throw;  // out of memory: the item is copied back when it is needed
    }
  }

  // Makes the device's work wait until the copy into the item's memory has ended, because then the memory can be reused.
  void release(Item& item) noexcept {
    if (!item.arrived) return;
    try {
      copies_->hold_work(*item.arrived);
    } catch (const std::exception&) {  // the device is lost
    }
  }

  const c10::Device device_;
  std::mutex mutex_;                              // guards the members below
  const std::unique_ptr<device::Copies> copies_;  // null: the device's tensors are host memory
  std::list<Item> items_;
  std::unordered_map<const c10::StorageImpl*, Place> known_;  // empty after the forward pass
  std::deque<Leaving> leaving_;
};

// A saved tensor. Until the backward pass, the tensor is in this object or on the shelf.
struct Moved final : torch::autograd::SavedVariableHooks {
  Moved(std::shared_ptr<Shelf> shelf, c10::Device device, std::uint64_t least_bytes, const std::unordered_set<const void*>& stay,
        std::uint64_t& count)
      : shelf_(std::move(shelf)), device_(device), least_bytes_(least_bytes), stay_(stay), count_(count) {}
  ~Moved() override {
    if (item_) shelf_->forget(*item_);
  }
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override {
    kept_ = tensor.detach();
    counter_ = tensor.unsafeGetTensorImpl()->version_counter();
    version_ = counter_.current_version();
    const bool moves = tensor.device() == device_ && tensor.layout() == at::kStrided && !tensor.is_conj() && !tensor.is_neg() &&
                       tensor.nbytes() >= least_bytes_ && !stay_.contains(tensor.storage().data());
    if (!moves) return;
    item_ = shelf_->put(kept_, version_, count_);
    sizes_ = kept_.sizes().vec();
    strides_ = kept_.strides().vec();
    offset_ = kept_.storage_offset();
    kept_ = at::empty({0}, kept_.options());
  }

  at::Tensor call_unpack_hook() override {
    // LibTorch does not check the version itself if a saved tensor has hooks.
    TORCH_CHECK(counter_.current_version() == version_,
                "a tensor that the backward pass needs was changed in place after the forward ", "pass had saved it (version ",
                counter_.current_version(), ", saved at version ", version_, ")");
    if (!item_) return kept_;
    return at::empty_like(kept_).set_(shelf_->take(*item_), offset_, sizes_, strides_);
  }

 private:
  std::shared_ptr<Shelf> shelf_;
  c10::Device device_;
  std::uint64_t least_bytes_;
  const std::unordered_set<const void*>& stay_;  // the scope's set, which this object uses only while the scope exists
  std::uint64_t& count_;
  c10::VariableVersion counter_;
  std::uint32_t version_ = 0;
  at::Tensor kept_;  // for a tensor on the shelf this has only its type
  std::optional<Shelf::Place> item_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t offset_ = 0;
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
