// Averages the steppers' states over the ranks, for runs in which each rank steps separately between two averages.
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <string_view>

#include "millrace/train/step/stepper.h"

namespace millrace {
namespace {

constexpr std::uint64_t kParcel = 16 << 20;  // bytes that are added up at a time

bool is_moment(std::string_view name) {
  return name.ends_with(".exp_avg") || name.ends_with(".exp_avg_sq") || name.ends_with(".momentum_buffer");
}

}  // namespace

bool Stepper::averages() const { return options_.average_every > 1 && !agreement().alone(); }

std::int64_t Stepper::average_over_ranks() {
  if (!averages()) return 0;
  const telemetry::Span span(timeline_, telemetry::Phase::reduction);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> means, of_root;
  const auto add = [&](const at::Tensor& value, bool has_mean) { (has_mean ? means : of_root).push_back(value.detach()); };
  for (const at::Tensor& buffer : recipe_.model().buffers()) add(buffer, at::isFloatingType(buffer.scalar_type()));
  for (ObjectiveStep& objective : objectives_) {
    for (const at::Tensor& parameter : objective.parameters()) add(parameter, true);
    for (const auto& [name, tensor] : objective.state().tensors) add(tensor, is_moment(name));
    if (objective.average() == nullptr) continue;
    for (const auto& [name, tensor] : objective.average()->weights()) add(tensor, true);
  }
  for (const auto& [name, tensor] : skips_.state().tensors) add(tensor, false);
  std::vector<at::Tensor> parcel;
  std::uint64_t bytes = 0;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    parcel.push_back(means[i]);
    bytes += means[i].nbytes();
    if (bytes < kParcel && i + 1 < means.size()) continue;
    agreement().mean(parcel);
    given += static_cast<std::int64_t>(bytes);
    parcel.clear();
    bytes = 0;
  }
  agreement().share_from_root(of_root);
  for (ObjectiveStep& objective : objectives_) objective.follow_root(agreement());
  return given;
}

}  // namespace millrace
