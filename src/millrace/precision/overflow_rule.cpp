#include "millrace/precision/overflow_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/format.h"

namespace millrace::precision {
namespace {

constexpr double kForget = 0.01;  // weight of the newest step in the running share of steps that overflowed
// Limit for the share of steps that overflow. While the scale falls from 65,536 to 1 for the first time, the share reaches 0.16
// without any fault.
constexpr double kTooMany = 0.25;
constexpr double kLowest = 1.0;
constexpr double kInARow = 3;

}  // namespace

OverflowRule::OverflowRule(c10::Device device, c10::ScalarType format) : format_(format) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  rate_ = at::zeros({}, options);
  scale_ = at::full({}, kLowest, options);
  given_up_ = at::zeros({}, options);
}

void OverflowRule::update(const at::Tensor& bad, const at::Tensor& in_a_row, const at::Tensor& scale) {
  at::Tensor now;
  if (format_ == at::kHalf) {
    rate_.lerp_(bad, kForget);
    scale_.copy_(scale);
    now = rate_.gt(kTooMany).logical_or_(scale.lt(kLowest));
  } else {
    now = in_a_row.ge(kInARow);
  }
  given_up_.copy_(at::maximum(given_up_, now.to(at::kFloat)));
}

bool OverflowRule::given_up() const { return given_up_.item<float>() != 0.0F; }

std::string OverflowRule::reason() const {
  if (format_ != at::kHalf) return fixed(kInARow, 0) + " steps in a row were not finite";
  const double scale = scale_.item<double>();
  if (scale < kLowest) return "the loss scale fell to " + significant(scale, 3);
  return percent(rate_.item<double>()) + " of the last steps overflowed";
}

State OverflowRule::state() const {
  return {.tensors = {{"overflow_rate", rate_}, {"overflow_scale", scale_}, {"gave_up", given_up_}}};
}

void OverflowRule::load_state(const State& state) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, own] : this->state().tensors) {
    const auto it = state.tensors.find(name);
    if (it != state.tensors.end()) own.copy_(it->second);
  }
}

}  // namespace millrace::precision
