#include "millrace/precision/loss_scale.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/error.h"

namespace millrace::precision {

LossScale::LossScale(c10::Device device, LossScaleOptions options)
    : options_(options),
      scale_(at::full({}, options.initial, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kInt).device(device))) {}

void LossScale::update(const at::Tensor& found_inf) {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth, options_.backoff, options_.growth_interval);
}

State LossScale::state() const { return {.tensors = {{"loss_scale", scale_}, {"growth_tracker", growth_tracker_}}}; }

void LossScale::load_state(const State& state) {
  for (const char* name : {"loss_scale", "growth_tracker"}) {
    const auto it = state.tensors.find(name);
    if (it == state.tensors.end() || !it->second.defined() || it->second.dim() != 0) {
      throw SnapshotError({.what = std::string("the state of the loss scale lacks the number \"") + name + "\"",
                           .where = "snapshot, part \"optimizer\"",
                           .next = "use an older snapshot, or start with --fresh"});
    }
  }
  const at::NoGradGuard no_grad;
  scale_.copy_(state.tensors.at("loss_scale"));
  growth_tracker_.copy_(state.tensors.at("growth_tracker"));
}

}  // namespace millrace::precision
