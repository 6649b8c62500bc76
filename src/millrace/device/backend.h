// The interface that each kind of device implements. The rest of the code does not depend on CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "millrace/device/recording.h"

namespace millrace::device {

class RankGroups;  // see device/rank_groups.h

// Implemented by the CUDA plugin (libmillrace_cuda.so); the CPU backend is built in. Thread-safe unless a function's comment says
// otherwise.
class Backend {
 public:
  struct MemoryCounters {
    std::uint64_t allocated_bytes = 0;
    std::uint64_t reserved_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t total_bytes = 0;
  };

  // Memory as the driver counts it for all programs on the device. This memory includes LibTorch's cached memory and the context
  // itself.
  struct DriverMemory {
    std::uint64_t free_bytes = 0;
    std::uint64_t total_bytes = 0;
  };

  // Properties of a device, constant for the life of the backend. Other folders base their choices on them.
  struct Nature {
    bool in_host_memory = false;        // tensors are in host memory, so a batch is a view of the loader's slot, not a copy
    bool has_double_sums = false;       // can add in fp64
    bool has_fused_optimizers = false;  // supports LibTorch's _fused_adamw_ and _fused_sgd_
    bool has_float_rate = false;        // the fused optimisers take their learning rate as fp32; otherwise as fp64
    bool has_tf32 = false;              // fp32 products can be computed in TF32
  };

  virtual ~Backend() = default;
  [[nodiscard]] virtual int device_count() const = 0;
  [[nodiscard]] virtual std::string device_name(int index) const = 0;
  [[nodiscard]] virtual std::pair<int, int> compute_capability(int index) const = 0;  // {0,0} on the CPU
  [[nodiscard]] virtual bool has_fast_bf16(int index) const = 0;
  // Reads only counters and does not wait for the device. memory_queries() counts the calls.
  [[nodiscard]] MemoryCounters memory(int index) const;
  [[nodiscard]] virtual Nature nature(int index) const = 0;
  [[nodiscard]] virtual DriverMemory driver_memory(int index) const = 0;  // asks the driver: do not call it within a step
  virtual void synchronize(int index) = 0;
  // The stream for copies, separate from the stream of the thread's LibTorch operations. Each device has exactly one copy
  // stream. If tensors are in host memory, the copy stream is the device's only stream. Use the stream with c10::StreamGuard and
  // c10::Event.
  [[nodiscard]] virtual c10::Stream copy_stream(int index) = 0;
  virtual void pin(std::byte* memory, std::size_t bytes) = 0;  // page-locks existing memory; does nothing on the CPU
  virtual void unpin(std::byte* memory) noexcept = 0;
  virtual void reset_peak(int) {}      // resets the peak of memory() to the present allocation
  virtual void release_cached(int) {}  // gives memory that no tensor uses back to the device
  // Calls `work` and records its launches, on this thread and on LibTorch's threads of a backward pass, without executing them.
  // Tensors that `work` makes have memory, but no values before the first replay. Recordings reuse the memory of tensors that
  // were freed during the recording, so replay the recordings of one step in the order in which they were made. Throws the
  // exceptions of `work`. Throws the device's error for an operation that can't be recorded: a wait, a read-back, or a copy
  // from or to pageable memory. After an exception, the device's state is as if `work` had not been called. Returns null,
  // without a call of `work`, if the device can't record.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(int, const std::function<void()>&) { return nullptr; }
  // Carries this device's tensors between the processes of a run; null if there is no such transport, and `reason` says why.
  [[nodiscard]] virtual RankGroups* rank_groups(std::string& reason) {
    reason = "its tensors are in host memory";
    return nullptr;
  }

 private:
  [[nodiscard]] virtual MemoryCounters read_memory(int index) const = 0;
};

}  // namespace millrace::device
