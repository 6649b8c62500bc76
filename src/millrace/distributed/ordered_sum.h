// The sum over ranks in the order of the ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace c10d {
class ProcessGroupGloo;
class Work;
}  // namespace c10d

namespace millrace::distributed {

// A sum over ranks that is under way: of each element ((rank 0 + rank 1) + rank 2) + ..., on all ranks the same bits. They do not
// depend on what travels together, as those of Gloo's allreduce do from three ranks on: a run that goes on, and groups its
// gradients anew, ends in the bits of one that was never stopped. bf16 and fp16 are added up in fp32 and rounded once.
//
// Each rank is given its slice of what all have, adds, and gives all the sum: the bytes of a ring. Ranks begin the same sums in
// the same order; the second halves are begun in that order too. Collective; a rank that is gone makes it throw.
class OrderedSum {
 public:
  // Begins to add up `flat` (contiguous, on the CPU), which is written by finish(). `to` and `back` carry the two halves; they
  // are one only where no sum begins before the last has ended.
  OrderedSum(c10d::ProcessGroupGloo& to, c10d::ProcessGroupGloo& back, at::Tensor flat);
  ~OrderedSum();
  OrderedSum(const OrderedSum&) = delete;
  OrderedSum& operator=(const OrderedSum&) = delete;

  // Begins the second half where it can, or waits until it can; false: it could not yet.
  bool go_on(bool waits);
  void finish();

 private:
  [[nodiscard]] bool is_even() const { return flat_.numel() == share_ * world_; }
  [[nodiscard]] at::Tensor added() const;

  c10d::ProcessGroupGloo* back_;
  std::int64_t world_, share_;
  at::Tensor flat_, parts_, mine_, all_;
  c10::intrusive_ptr<c10d::Work> first_, second_;
};

}  // namespace millrace::distributed
