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

// A sum over ranks that is under way: of each element ((rank 0 + rank 1) + rank 2) + ..., on all ranks the same bits. They do not
// depend on what travels together, as those of the libraries' allreduce do from three ranks on: a run that goes on, and groups
// its gradients anew, ends in the bits of one that was never stopped. bf16 and fp16 are added up in fp32 and rounded once.
//
// Each rank is given its slice of what all have, adds, and gives all the sum: the bytes of a ring. Ranks begin the same sums in
// the same order; the second halves are begun in that order too. Collective; a rank that is gone makes it throw.
//
// Of a group whose waits hold up a stream and not the thread (NCCL), all this is the current stream's: finish() makes it wait.
class OrderedSum {
 public:
  // Begins to add up `flat` (contiguous), which is written by finish(). `to` and `back` carry the two halves; they are one only
  // where no sum begins before the last has ended, or with `beside`: a stream in which the second half is begun at once, so that
  // the order of the halves is one on all ranks and the current stream goes on.
  OrderedSum(c10d::Backend& to, c10d::Backend& back, at::Tensor flat, std::optional<c10::Stream> beside = std::nullopt);
  ~OrderedSum();
  OrderedSum(const OrderedSum&) = delete;
  OrderedSum& operator=(const OrderedSum&) = delete;

  // Begins the second half where it can, or waits until it can; false: it could not yet.
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
