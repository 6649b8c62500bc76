#include "millrace/device/copies.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "millrace/device/device.h"

namespace millrace::device {
namespace {

class EventMark final : public Copies::Mark {
 public:
  explicit EventMark(const c10::Stream& stream) : event_(stream.device_type()) { event_.record(stream); }
  [[nodiscard]] bool reached() const override { return event_.query(); }
  void wait() const override { event_.synchronize(); }
  void hold(const c10::Stream& stream) const { event_.block(stream); }

 private:
  c10::Event event_;
};

class StreamCopies final : public Copies {
 public:
  StreamCopies(c10::Device device, c10::Stream stream) : guard_(device.type()), device_(device), stream_(stream) {}

  [[nodiscard]] at::Tensor memory(std::int64_t bytes) override {
    return at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
  }
  void copy(const at::Tensor& to, const at::Tensor& from) override {
    const c10::StreamGuard beside(stream_);
    to.copy_(from, /*non_blocking=*/true);
  }
  [[nodiscard]] MarkPtr mark_work() override { return std::make_shared<EventMark>(work()); }
  [[nodiscard]] MarkPtr mark_copies() override { return std::make_shared<EventMark>(stream_); }
  void hold_work(const Mark& until) override { static_cast<const EventMark&>(until).hold(work()); }
  void hold_copies(const Mark& until) override { static_cast<const EventMark&>(until).hold(stream_); }

 private:
  [[nodiscard]] c10::Stream work() const { return guard_.getStream(device_); }

  c10::impl::VirtualGuardImpl guard_;
  c10::Device device_;
  c10::Stream stream_;
};

}  // namespace

std::unique_ptr<Copies> copies_of(c10::Device device) {
  Backend& backend = backend_of(device);
  const int index = device.has_index() ? device.index() : 0;
  if (backend.nature(index).in_host_memory) return nullptr;
  const c10::Device one(device.type(), static_cast<c10::DeviceIndex>(index));
  return std::make_unique<StreamCopies>(one, backend.copy_stream(index));
}

}  // namespace millrace::device
