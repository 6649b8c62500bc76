// Adds up values over ranks in the order of the ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace millrace::distributed {

// A running sum over ranks. Each element is ((rank 0 + rank 1) + rank 2) + ..., with the same bits on all ranks. The bits do not
// depend on which tensors travel together, as they would with the libraries' allreduce of three or more ranks. So a resumed run,
// which groups its gradients again, ends with the same bits as an uninterrupted run. bf16 and fp16 are added up in fp32 and
// rounded once.
//
// In the first half, each rank receives its slice of all ranks' values and adds them up. In the second half, each rank sends its
// slice of the sum to all ranks. Both halves together send as many bytes as a ring allreduce. All ranks begin the same sums in
// the same order, and also the second halves. Collective; throws if a rank is gone.
//
// In a group whose waits block a stream instead of the thread (NCCL), all of this happens in the current stream, and finish()
// makes that stream wait.
class OrderedSum {
 public:
  // Begins to add up `flat` (contiguous), which finish() overwrites. `to` and `back` carry the two halves. They may be the same
  // group if a sum begins only after the last one has ended, or if there is a `second_stream`. With a `second_stream`, the
  // second half begins at once in that stream, so that the order of the halves is the same on all ranks, and the current stream
  // continues.
  OrderedSum(c10d::Backend& to, c10d::Backend& back, at::Tensor flat, std::optional<c10::Stream> second_stream = std::nullopt);
  ~OrderedSum();
  OrderedSum(const OrderedSum&) = delete;
  OrderedSum& operator=(const OrderedSum&) = delete;

  // Begins the second half if the first half has arrived. With `waits`, it first waits for the first half. Returns false if the
  // first half has not arrived.
  bool go_on(bool waits);
  void finish();

 private:
  [[nodiscard]] bool is_even() const { return flat_.numel() == share_ * world_; }
  void add();
  void begin_second();

  c10d::Backend* back_;
  std::int64_t world_, share_;
  at::Tensor flat_, given_, parts_, mine_, all_;
  c10::intrusive_ptr<c10d::Work> first_, second_;
};

}  // namespace millrace::distributed
