// Copies between the host and a device that run in parallel with the device's work.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace millrace::device {

// A device with its own memory has two queues: work (the operations of the thread) and copies. The queues wait for each other
// only at a mark. The host waits for them only on request. Use the object on one thread at a time.
class Copies {
 public:
  // A position in one of the two queues. Any thread may use a mark.
  class Mark {
   public:
    virtual ~Mark() = default;
    [[nodiscard]] virtual bool reached() const = 0;  // true if everything before the mark is done; never waits
    virtual void wait() const = 0;                   // the host waits until the mark is reached
  };
  using MarkPtr = std::shared_ptr<const Mark>;

  virtual ~Copies() = default;
  // Allocates this many bytes on the device for work that is launched after this call.
  [[nodiscard]] virtual at::Tensor memory(std::int64_t bytes) = 0;
  // Starts a copy. `from` and `to` have the same shape and type. The caller must keep both memories unchanged until a mark after
  // the copy is reached. A copy from or to pageable host memory is correct, but slow.
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;
  [[nodiscard]] virtual MarkPtr mark_work() = 0;    // a mark after all work launched so far
  [[nodiscard]] virtual MarkPtr mark_copies() = 0;  // a mark after all copies started so far
  // Makes later work, or later copies, wait on the device until the mark is reached.
  virtual void hold_work(const Mark& until) = 0;
  virtual void hold_copies(const Mark& until) = 0;
};

// Returns an object for the copies of a device; null if the device's tensors are in host memory, because then no copies are
// needed.
[[nodiscard]] std::unique_ptr<Copies> copies_of(c10::Device device);

}  // namespace millrace::device
