#include "millrace/distributed/ordered_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

namespace millrace::distributed {
namespace {

at::Tensor bytes_of(const at::Tensor& values) { return values.view({-1}).view(at::kByte); }

}  // namespace

OrderedSum::OrderedSum(c10d::ProcessGroupGloo& to, c10d::ProcessGroupGloo& back, at::Tensor flat)
    : back_(&back), world_(to.getSize()), share_((flat.numel() + world_ - 1) / world_), flat_(std::move(flat)) {
  if (world_ <= 2) {  // two numbers have one sum
    std::vector<at::Tensor> all = {flat_};
    first_ = to.allreduce(all);
    return;
  }
  at::Tensor given = flat_;
  if (!is_even()) {
    given = at::zeros({world_ * share_}, flat_.options());
    given.narrow(0, 0, flat_.numel()).copy_(flat_);
  }
  parts_ = at::empty({world_, share_}, flat_.options());
  at::Tensor in = bytes_of(given), out = bytes_of(parts_);
  std::vector<std::int64_t> even;
  first_ = to.alltoall_base(out, in, even, even);
}

OrderedSum::~OrderedSum() = default;

at::Tensor OrderedSum::added() const {
  const at::ScalarType type = flat_.scalar_type();
  const bool rounds = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor sum = rounds ? parts_.select(0, 0).to(at::kFloat) : parts_.select(0, 0).clone();
  for (std::int64_t rank = 1; rank < world_; ++rank) sum.add_(parts_.select(0, rank));
  return rounds ? sum.to(type) : sum;
}

bool OrderedSum::go_on(bool waits) {
  if (world_ <= 2 || second_) return true;
  if (!waits && !(first_->isCompleted() && first_->isSuccess())) return false;
  first_->wait();
  mine_ = added();
  parts_ = at::Tensor();
  all_ = is_even() ? flat_ : at::empty({world_ * share_}, flat_.options());
  at::Tensor in = bytes_of(mine_), out = bytes_of(all_);
  second_ = back_->_allgather_base(out, in);
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
