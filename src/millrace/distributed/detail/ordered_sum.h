// The sum over ranks in the order of the ranks.
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

// A sum over ranks that is under way: for each element ((rank 0 + rank 1) + rank 2) + ..., the same bits on all ranks. They do
// not depend on which tensors travel together, as those of the libraries' allreduce do from three ranks on: a resumed run, which
// groups its gradients anew, ends in the same bits as an uninterrupted one. bf16 and fp16 are added up in fp32 and rounded once.
//
// Each rank receives its slice of all ranks' values, adds, and sends all ranks the sum: the same bytes as a ring. Ranks begin the
// same sums in the same order, and the second halves in that order too. Collective; throws if a rank is gone.
//
// For a group whose waits block a stream and not the thread (NCCL), all of this happens in the current stream: finish() makes it
// wait.
class OrderedSum {
 public:
  // Begins to add up `flat` (contiguous), which finish() overwrites. `to` and `back` carry the two halves; they may be the same
  // group only if no sum begins before the last has ended, or with `second_stream`: a stream in which the second half begins at
  // once, so that the order of the halves is the same on all ranks and the current stream continues.
  OrderedSum(c10d::Backend& to, c10d::Backend& back, at::Tensor flat, std::optional<c10::Stream> second_stream = std::nullopt);
  ~OrderedSum();
  OrderedSum(const OrderedSum&) = delete;
  OrderedSum& operator=(const OrderedSum&) = delete;

  // Begins the second half if the first has arrived; with `waits`, waits for the first. False if the first has not arrived.
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
