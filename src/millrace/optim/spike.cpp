#include "millrace/optim/spike.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/error.h"

namespace millrace::optim {
namespace {

// The least standard deviation, relative to the mean. Without it, each ripple of a loss that hardly moves would be a spike.
constexpr double kLeastSpread = 0.01;

}  // namespace

SpikeRule::SpikeRule(c10::Device device, std::int64_t count, double zscore) : zscore_(zscore) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  window_ = at::zeros({kWindow, count}, options);
  seen_ = at::zeros({}, options);
}

at::Tensor SpikeRule::judge(const at::Tensor& values, const at::Tensor& bad) {
  const at::NoGradGuard no_grad;
  const at::Tensor now = values.to(at::kDouble);
  const at::Tensor mean = window_.mean(0);
  const at::Tensor spread = at::maximum(window_.std(0, /*unbiased=*/false), mean.abs() * kLeastSpread);
  const at::Tensor limit = mean + spread * zscore_;
  const at::Tensor full = seen_.ge(static_cast<double>(kWindow));
  const at::Tensor sound = bad.eq(0);
  const at::Tensor spike = now.gt(limit).any().logical_and(full).logical_and(sound);
  // A number that is not finite would stay in the limit, and so in the window, for good.
  const at::Tensor counts = sound.logical_and(at::isfinite(now).all());
  const at::Tensor entry = at::where(full, at::minimum(now, limit), now);
  const at::Tensor moved = at::cat({window_.narrow(0, 1, kWindow - 1), entry.unsqueeze(0)});
  window_.copy_(at::where(counts, moved, window_));
  seen_.add_(counts);
  return spike.to(at::kFloat);
}

State SpikeRule::state() const { return {.tensors = {{"spike_window", window_}, {"spike_seen", seen_}}}; }

void SpikeRule::load_state(const State& state) {
  for (const auto& [name, own] : this->state().tensors) {
    const auto it = state.tensors.find(name);
    if (it == state.tensors.end() || it->second.sizes() != own.sizes()) {
      throw SnapshotError({.what = "the snapshot's \"" + name + "\" is missing or of another shape",
                           .where = "snapshot, part \"optimizer\"",
                           .next = "resume with the optim.spike_zscore of the run, or start with --fresh"});
    }
  }
  const at::NoGradGuard no_grad;
  window_.copy_(state.tensors.at("spike_window"));
  seen_.copy_(state.tensors.at("spike_seen"));
}

}  // namespace millrace::optim
