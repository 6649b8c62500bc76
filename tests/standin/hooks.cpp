// LibTorch's interface to a kind of device: the guard (devices, streams, events) and the hooks (generators, page-locked memory).
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device_memory.h"
#include "generator.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

c10::Device device_at(int index) { return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)}; }
int index_of(c10::Device device) { return device.has_index() ? device.index() : current_device(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  [[nodiscard]] c10::DeviceType type() const override { return c10::kCUDA; }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device device) const override {
    return device_at(exchange_device(device.index()));
  }
  [[nodiscard]] c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device device) const override { (void)exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { (void)exchange_device(device.index()); }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  [[nodiscard]] c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device_at(index_of(device)));
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*priority*/) const override {
    return stream_from_pool(index_of(device));
  }
  [[nodiscard]] c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream_from_pool(index_of(device));
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  [[nodiscard]] bool queryStream(const c10::Stream& stream) const override { return query(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { wait(stream, "synchronize"); }
  void synchronizeDevice(c10::DeviceIndex index) const override { wait_for_device(index < 0 ? current_device() : index); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*index*/, c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    standin::record(*static_cast<Event*>(*event), stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) standin::block(*static_cast<Event*>(event), stream);
  }
  [[nodiscard]] bool queryEvent(void* event) const override { return event == nullptr || query(*static_cast<Event*>(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) wait(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override { delete static_cast<Event*>(event); }
  // Kernels run when they are launched, so the host's clock is the device's.
  [[nodiscard]] double elapsedTime(void* from, void* to, c10::DeviceIndex /*index*/) const override {
    for (void* const each : {from, to}) refuse_recorded(*static_cast<Event*>(each), "the time");
    constexpr double kMilliseconds = 1e3;
    return (static_cast<Event*>(to)->seconds - static_cast<Event*>(from)->seconds) * kMilliseconds;
  }
  void recordDataPtrOnStream(const c10::DataPtr& /*pointer*/, const c10::Stream& /*stream*/) const override {}
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct StandinHooks final : at::CUDAHooksInterface {
  explicit StandinHooks(at::CUDAHooksArgs /*none*/) {}
  void init() const override {}
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  [[nodiscard]] bool hasCUDA() const override { return true; }
  [[nodiscard]] bool hasCUDART() const override { return true; }
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kDevices; }
  [[nodiscard]] int getNumGPUs() const override { return kDevices; }
  [[nodiscard]] c10::DeviceIndex current_device() const override {
    return static_cast<c10::DeviceIndex>(standin::current_device());
  }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { (void)exchange_device(device); }
  [[nodiscard]] c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : static_cast<c10::DeviceIndex>(exchange_device(device));
  }
  [[nodiscard]] c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  [[nodiscard]] const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? standin::current_device() : device);
  }
  [[nodiscard]] at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device < 0 ? standin::current_device() : device);
  }
  [[nodiscard]] at::Device getDeviceFromPtr(void* data) const override {
    const int device = device_of(data);
    TORCH_CHECK(device >= 0, "The pointer is no address of a stand-in device");
    return device_at(device);
  }
  [[nodiscard]] bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  [[nodiscard]] at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  [[nodiscard]] at::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  [[nodiscard]] std::string showConfig() const override { return "a stand-in for CUDA, for tests"; }
  void deviceSynchronize(c10::DeviceIndex device) const override { wait_for_device(device); }
};

// The one of LibTorch's CUDA library is not loaded, and its name is the one that LibTorch asks for.
const bool kRegistered = [] {
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks",
      [](at::CUDAHooksArgs args) -> std::unique_ptr<at::CUDAHooksInterface> { return std::make_unique<StandinHooks>(args); }, "");
  c10::SetAllocator(c10::kCUDA, device_allocator());
  return true;
}();

}  // namespace
}  // namespace millrace::standin
