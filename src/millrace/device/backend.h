// What a kind of device has to offer, behind one interface: nothing else in the tree knows CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace millrace::device {

class RankGroups;  // device/rank_groups.h

struct MemoryCounters {
  std::uint64_t allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// Memory as the driver counts it: of all programs on the device, with what LibTorch's allocator keeps and the context itself.
struct DriverMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// What other folders have to know of a device to choose for it; the same for the whole life of the backend.
struct Nature {
  bool in_host_memory = false;        // its tensors are host memory: a batch is a view of its slot, and nothing is copied
  bool has_double_sums = false;       // adds in fp64
  bool has_fused_optimizers = false;  // LibTorch's _fused_adamw_ and _fused_sgd_
  bool has_float_rate = false;        // these take their learning rate as fp32, elsewhere as fp64
  bool has_tf32 = false;              // fp32 products can be computed in TF32
};

// What the CUDA plugin (libmillrace_cuda.so) implements; the CPU one is built in. Thread-safe unless a call says otherwise.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual int device_count() const = 0;
  [[nodiscard]] virtual std::string device_name(int index) const = 0;
  [[nodiscard]] virtual std::pair<int, int> compute_capability(int index) const = 0;  // {0,0} on the CPU
  [[nodiscard]] virtual bool has_fast_bf16(int index) const = 0;
  [[nodiscard]] MemoryCounters memory(int index) const;  // counters only, no synchronisation; each call is counted
  [[nodiscard]] virtual Nature nature(int index) const = 0;
  [[nodiscard]] virtual DriverMemory driver_memory(int index) const = 0;  // asks the driver: not within a step
  virtual void synchronize(int index) = 0;
  // The stream for copies, beside the one that LibTorch's operations of the thread go to; one per device, always the same. Where
  // tensors are host memory it is the only stream there is. To be used with c10::StreamGuard and c10::Event.
  [[nodiscard]] virtual c10::Stream copy_stream(int index) = 0;
  virtual void pin(std::byte* memory, std::size_t bytes) = 0;  // page-lock existing memory; no-op on the CPU
  virtual void unpin(std::byte* memory) noexcept = 0;
  virtual void reset_peak(int) {}      // of memory(): what is allocated now is the peak
  virtual void release_cached(int) {}  // gives memory that no tensor uses back to the device
  // What carries this device's tensors between the processes of a run; null where nothing does, and `reason` says why.
  [[nodiscard]] virtual RankGroups* rank_groups(std::string& reason) {
    reason = "its tensors are in host memory";
    return nullptr;
  }

 private:
  [[nodiscard]] virtual MemoryCounters read_memory(int index) const = 0;
};

}  // namespace millrace::device
