#include "millrace/distributed/detail/ordered_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

namespace millrace::distributed {
namespace {

at::Tensor bytes_of(const at::Tensor& values) { return values.view({-1}).view(at::kByte); }

}  // namespace

OrderedSum::OrderedSum(c10d::Backend& to, c10d::Backend& back, at::Tensor flat, std::optional<c10::Stream> second_stream)
    : back_(&back), world_(to.getSize()), share_((flat.numel() + world_ - 1) / world_), flat_(std::move(flat)) {
  if (world_ <= 2) {  // with at most two ranks the order of the summands does not change the sum
    std::vector<at::Tensor> all = {flat_};
    first_ = to.allreduce(all);
    return;
  }
  given_ = flat_;
  if (!is_even()) {
    given_ = at::zeros({world_ * share_}, flat_.options());
    given_.narrow(0, 0, flat_.numel()).copy_(flat_);
  }
  parts_ = at::empty({world_, share_}, flat_.options());
  at::Tensor in = bytes_of(given_), out = bytes_of(parts_);
  std::vector<std::int64_t> even;
  first_ = to.alltoall_base(out, in, even, even);
  if (!second_stream) return;
  // The new tensors belong to the current stream, which waits for the second stream before they are freed.
  mine_ = at::empty({share_}, flat_.options());
  all_ = is_even() ? flat_ : at::empty({world_ * share_}, flat_.options());
  const c10::StreamGuard guard(*second_stream);
  first_->wait();
  begin_second();
}

OrderedSum::~OrderedSum() = default;

// Adds the parts of all ranks, in the order of the ranks, into mine_.
void OrderedSum::add() {
  const at::ScalarType type = flat_.scalar_type();
  const bool rounds = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor sum = rounds ? parts_.select(0, 0).to(at::kFloat) : mine_.copy_(parts_.select(0, 0));
  for (std::int64_t rank = 1; rank < world_; ++rank) sum.add_(parts_.select(0, rank));
  if (rounds) mine_.copy_(sum);
}

void OrderedSum::begin_second() {
  add();
  at::Tensor in = bytes_of(mine_), out = bytes_of(all_);
  second_ = back_->_allgather_base(out, in);
}

bool OrderedSum::go_on(bool waits) {
  if (world_ <= 2 || second_) return true;
  if (!waits && !(first_->isCompleted() && first_->isSuccess())) return false;
  first_->wait();
  mine_ = at::empty({share_}, flat_.options());
  all_ = is_even() ? flat_ : at::empty({world_ * share_}, flat_.options());
  begin_second();
  parts_ = given_ = at::Tensor();
  return true;
}

void OrderedSum::finish() {
  if (world_ <= 2) {
    first_->wait();
    return;
  }
  go_on(true);
  second_->wait();
  if (!is_even()) flat_.copy_(all_.narrow(0, 0, flat_.numel()));
}

}  // namespace millrace::distributed
