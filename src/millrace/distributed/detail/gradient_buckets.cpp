#include "millrace/distributed/detail/gradient_buckets.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/distributed/detail/ordered_sum.h"

namespace millrace::distributed {
namespace {

at::ScalarType travels_as(const at::Tensor& parameter, bool compress) {
  const at::ScalarType own = parameter.scalar_type();
  return compress && own == at::kFloat ? at::kBFloat16 : own;
}

}  // namespace

struct GradientBuckets::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientBuckets& buckets, std::size_t parameter) : buckets_(buckets), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { buckets_.arrive(parameter_); }

 private:
  GradientBuckets& buckets_;
  std::size_t parameter_;
};

struct GradientBuckets::Bucket {
  at::Tensor flat;
  std::size_t members = 0, missing = 0;
  std::unique_ptr<OrderedSum> sum;
};

GradientBuckets::GradientBuckets(BucketBackends backends, std::vector<at::Tensor> parameters, const GradientSumsOptions& options,
                                 Guard guard)
    : backends_(std::move(backends)), parameters_(std::move(parameters)), options_(options), guard_(std::move(guard)) {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  lay_out(order);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
}

GradientBuckets::~GradientBuckets() {
  for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientBuckets::lay_out(const std::vector<std::size_t>& order) {
  const at::NoGradGuard no_grad;
  struct Open {
    std::vector<std::size_t> members;
    std::int64_t elements = 0;
  };
  buckets_.clear();
  slots_.assign(parameters_.size(), {});
  const auto close = [this](const Open& open, at::ScalarType type) {
    const auto like = parameters_[open.members.front()].options().dtype(type);
    Bucket bucket{.flat = at::empty({open.elements}, like), .members = open.members.size(), .missing = 0, .sum = {}};
    std::int64_t begin = 0;
    for (const std::size_t i : open.members) {
      const at::Tensor& parameter = parameters_[i];
      const at::Tensor part = bucket.flat.narrow(0, begin, parameter.numel());
      begin += parameter.numel();
      slots_[i].bucket = buckets_.size();
      slots_[i].view = parameter.is_non_overlapping_and_dense() ? part.as_strided(parameter.sizes(), parameter.strides())
                                                                : part.view(parameter.sizes());
    }
    buckets_.push_back(std::move(bucket));
  };
  std::map<at::ScalarType, Open> opened;
  for (const std::size_t i : order) {
    const at::ScalarType type = travels_as(parameters_[i], options_.compress);
    Open& open = opened[type];
    open.members.push_back(i);
    open.elements += parameters_[i].numel();
    if (open.elements * static_cast<std::int64_t>(c10::elementSize(type)) < options_.bucket_bytes) continue;
    close(open, type);
    opened.erase(type);
  }
  for (const auto& [type, open] : opened) close(open, type);
}

void GradientBuckets::begin(const at::Tensor& factor) {
  const std::lock_guard lock(mutex_);
  factor_ = factor;
  begun_ = true;
  sent_ = spoiled_ = false;
  next_ = next_back_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members;
  for (Slot& slot : slots_) slot.filled = false;
}

// A gradient that changes after it was sent is not sent again. The sum is then wrong, but it is the same on all ranks.
void GradientBuckets::arrive(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (!begun_ || sent_) return;
  if (slots_[parameter].filled) {
    spoiled_ = true;
    return;
  }
  if (!order_agreed_) arrivals_.push_back(parameter);
  fill(parameter);
  launch_full();
}

void GradientBuckets::fill(std::size_t parameter) {
  const at::NoGradGuard no_grad;
  Slot& slot = slots_[parameter];
  const at::Tensor& gradient = parameters_[parameter].grad();
  if (gradient.defined()) {
    at::mul_out(slot.view, gradient, factor_);
  } else {
    slot.view.zero_();
  }
  slot.filled = true;
  --buckets_[slot.bucket].missing;
}

void GradientBuckets::launch_full() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    Bucket& bucket = buckets_[next_];
    bucket.sum = std::make_unique<OrderedSum>(*backends_.to, *backends_.back, bucket.flat, backends_.second_stream);
    ++traffic_.buckets;
    if (!sent_) ++traffic_.early_buckets;
    traffic_.bytes += static_cast<std::int64_t>(bucket.flat.nbytes());
  }
  while (next_back_ < next_ && buckets_[next_back_].sum->go_on(/*waits=*/false)) ++next_back_;
}

void GradientBuckets::send() {
  const std::lock_guard lock(mutex_);
  MR_CHECK(begun_, "gradients are sent after begin()");
  if (std::exchange(sent_, true)) return;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].filled) fill(i);
  }
  launch_full();
}

std::vector<at::Tensor> GradientBuckets::receive() {
  MR_CHECK(sent_, "gradients are received after send()");
  const at::NoGradGuard no_grad;
  guard_([this] {
    for (; next_back_ < buckets_.size(); ++next_back_) buckets_[next_back_].sum->go_on(/*waits=*/true);
    for (Bucket& bucket : buckets_) std::exchange(bucket.sum, {})->finish();
  });
  begun_ = sent_ = false;
  std::vector<at::Tensor> sums;
  sums.reserve(slots_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) sums.push_back(slots_[i].view.to(parameters_[i].scalar_type()));
  if (!order_agreed_) agree_on_order();
  return sums;
}

// Agrees on a new order: first the gradients that have arrived, in the order of their arrival on rank 0, then the others. The
// result of receive() stays valid, because that result has its own memory.
void GradientBuckets::agree_on_order() {
  order_agreed_ = true;
  std::vector<std::size_t> order = std::exchange(arrivals_, {});
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (std::ranges::find(order, i) == order.end()) order.push_back(i);
  }
  std::vector<at::Tensor> all = {at::zeros({static_cast<std::int64_t>(order.size())}, at::kLong)};
  auto* places = all[0].mutable_data_ptr<std::int64_t>();
  if (backends_.words->getRank() == 0) std::ranges::copy(order, places);
  guard_([&] { backends_.words->allreduce(all)->wait(); });
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::size_t>(places[i]);
  lay_out(order);
}

}  // namespace millrace::distributed
