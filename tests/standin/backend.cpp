// libmillrace_cuda.so of the stand-in: the program opens it in place of the CUDA plugin.
#include <array>
#include <cstddef>
#include <cstdio>

#include "device_memory.h"
#include "millrace/base/error.h"
#include "millrace/device/detail/plugin.h"
#include "ranks.h"
#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

class StandinBackend final : public device::Backend {
 public:
  [[nodiscard]] int device_count() const override { return kDevices; }
  [[nodiscard]] std::string device_name(int index) const override { return "stand-in GPU " + std::to_string(index); }
  [[nodiscard]] std::pair<int, int> compute_capability(int /*index*/) const override { return {9, 0}; }
  [[nodiscard]] bool has_fast_bf16(int /*index*/) const override { return true; }
  [[nodiscard]] device::Backend::Nature nature(int /*index*/) const override {
    return {.has_double_sums = true, .has_fused_optimizers = true, .has_float_rate = true, .has_tf32 = true};
  }
  [[nodiscard]] device::Backend::DriverMemory driver_memory(int index) const override {
    const Usage now = usage(index);
    return {.free_bytes = now.total - now.reserved, .total_bytes = now.total};
  }
  void synchronize(int index) override { wait_for_device(index); }
  [[nodiscard]] c10::Stream copy_stream(int index) override {
    static const std::array<c10::Stream, kDevices> streams = {stream_from_pool(0), stream_from_pool(1), stream_from_pool(2),
                                                              stream_from_pool(3)};
    return streams.at(static_cast<std::size_t>(index));
  }
  void pin(std::byte* memory, std::size_t bytes) override { standin::pin(memory, bytes); }
  void unpin(std::byte* memory) noexcept override {
    if (is_in_use(memory)) std::fprintf(stderr, "stand-in: memory is unpinned while a copy needs it\n");
    standin::unpin(memory);
  }
  [[nodiscard]] device::RankGroups* rank_groups(std::string& /*reason*/) override { return &standin::rank_groups(); }
  [[nodiscard]] std::unique_ptr<device::Recording> record(int index, const std::function<void()>& work) override {
    return standin::record(index, work);
  }
  void reset_peak(int index) override { standin::reset_peak(index); }

 private:
  [[nodiscard]] device::Backend::MemoryCounters read_memory(int index) const override {
    const Usage now = usage(index);
    return {.allocated_bytes = now.allocated, .reserved_bytes = now.reserved, .peak_bytes = now.peak, .total_bytes = now.total};
  }
};

}  // namespace
}  // namespace millrace::standin

extern "C" __attribute__((visibility("default"))) millrace::device::Backend* millrace_cuda_backend(int interface) {
  if (interface != millrace::device::detail::kPluginInterface) return nullptr;
  static millrace::standin::StandinBackend backend;
  return &backend;
}
