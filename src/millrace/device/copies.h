// Copies between the host and a device that run beside the device's work.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace millrace::device {

// A device whose tensors are not host memory has two orders of things to do: the work, which is what the thread's operations are
// launched into, and copies. Neither waits for the other but at a mark, and the host waits for neither unless it says so. Belongs
// to one thread at a time.
class Copies {
 public:
  // A place in one of the two orders. Any thread may ask.
  class Mark {
   public:
    virtual ~Mark() = default;
    [[nodiscard]] virtual bool reached() const = 0;  // all that stands before it is done; never waits
    virtual void wait() const = 0;                   // on the host, until it is reached
  };
  using MarkPtr = std::shared_ptr<const Mark>;

  virtual ~Copies() = default;
  // So many bytes on the device, for the work that is launched from here on.
  [[nodiscard]] virtual at::Tensor memory(std::int64_t bytes) = 0;
  // From and to have the same shape and type. Both memories stay as they are until a mark behind the copy is reached; it is the
  // caller's to see to that. From or to pageable host memory it is right as well, and slow.
  virtual void copy(const at::Tensor& to, const at::Tensor& from) = 0;
  [[nodiscard]] virtual MarkPtr mark_work() = 0;    // behind all that was launched so far
  [[nodiscard]] virtual MarkPtr mark_copies() = 0;  // behind all copies so far
  // What comes next waits on the device until the mark is reached.
  virtual void hold_work(const Mark& until) = 0;
  virtual void hold_copies(const Mark& until) = 0;
};

// Null where tensors are host memory: there is nothing to copy.
[[nodiscard]] std::unique_ptr<Copies> copies_of(c10::Device device);

}  // namespace millrace::device
