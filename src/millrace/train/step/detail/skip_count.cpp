#include "millrace/train/step/detail/skip_count.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/field.h"
#include "millrace/core/saved_json.h"

namespace millrace {

SkipCount::SkipCount(at::Device device)
    : device_(device),
      in_all_(at::zeros({}, at::TensorOptions(at::kDouble).device(device))),
      in_a_row_(at::zeros({}, at::TensorOptions(at::kDouble).device(device))) {}

void SkipCount::use_rule_of(std::optional<at::ScalarType> format) {
  rule_.reset();
  if (format) rule_.emplace(device_, *format);
}

void SkipCount::add(const at::Tensor& bad, const at::Tensor& smallest_scale) {
  in_all_ += bad;
  in_a_row_.add_(1).mul_(bad);
  if (rule_) rule_->update(bad, in_a_row_, smallest_scale);
}

std::optional<std::string> SkipCount::overflow() const {
  return rule_ && rule_->given_up() ? std::optional(rule_->reason()) : std::nullopt;
}

State SkipCount::state() const {
  State all = rule_ ? rule_->state() : State();
  all.tensors["skipped"] = in_all_;
  all.tensors["skipped_in_a_row"] = in_a_row_;
  return all;
}

void SkipCount::load_state(const State& state) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, own] : this->state().tensors) {
    const auto it = state.tensors.find(name);
    if (it == state.tensors.end() || it->second.sizes() == own.sizes()) continue;
    refuse_part("optimizer", "tensor \"" + name + "\" is " +
                                 to_text(Shape(it->second.sizes().begin(), it->second.sizes().end())) + ", not " +
                                 to_text(Shape(own.sizes().begin(), own.sizes().end())));
  }
  if (const auto it = state.tensors.find("skipped"); it != state.tensors.end()) in_all_.copy_(it->second);
  if (const auto it = state.tensors.find("skipped_in_a_row"); it != state.tensors.end()) in_a_row_.copy_(it->second);
  if (rule_) rule_->load_state(state);
}

}  // namespace millrace
