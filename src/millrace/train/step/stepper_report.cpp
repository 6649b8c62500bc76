#include "millrace/train/step/stepper_report.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <torch/nn/module.h>

#include "millrace/base/error.h"

namespace millrace {

std::vector<ObjectiveReport> reports_of(const Stepper& stepper) {
  std::vector<at::Tensor> values;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    const ObjectiveStep::Readings now = objective.readings();
    values.push_back(now.norm.to(at::kDouble));
    values.push_back(now.spikes);
    values.push_back(now.loss_scale.defined() ? now.loss_scale.to(at::kDouble) : at::ones_like(now.spikes));
  }
  const at::Tensor host = at::stack(values).to(at::kCPU);
  const auto* value = host.const_data_ptr<double>();
  std::vector<ObjectiveReport> reports;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    const ObjectiveStep::Readings now = objective.readings();
    const std::string& name = objective.spec().name;
    if (now.misfit.item<float>() > 0) {
      throw RecipeError(
          {"objective " + name + ": the count of a per_row term is not in proportion to the count of the first term",
           "LossTerm::per_row", "remove per_row from that term"});
    }
    reports.push_back({.name = name,
                       .learning_rate = now.learning_rate,
                       .gradient_norm = value[0],
                       .spikes = value[1],
                       .loss_scale = now.loss_scale.defined() ? std::optional(value[2]) : std::nullopt,
                       .present = now.took_part});
    value += 3;
  }
  return reports;
}

GradientSums::Traffic traffic_of(const Stepper& stepper) {
  GradientSums::Traffic all;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    const GradientSums::Traffic sent = objective.readings().traffic;
    all.buckets += sent.buckets;
    all.early_buckets += sent.early_buckets;
    all.bytes += sent.bytes;
  }
  return all;
}

std::map<std::string, std::uint64_t> state_bytes_of(const Stepper& stepper) {
  std::map<std::string, std::uint64_t> bytes = {{"parameters", 0}, {"buffers", 0}, {"gradients", 0}, {"optimizer", 0}};
  for (const at::Tensor& parameter : stepper.model().parameters()) {
    bytes["parameters"] += parameter.nbytes();
    if (parameter.grad().defined()) bytes["gradients"] += parameter.grad().nbytes();
  }
  for (const at::Tensor& buffer : stepper.model().buffers()) bytes["buffers"] += buffer.nbytes();
  for (const ObjectiveStep& objective : stepper.objectives()) {
    for (const auto& [name, tensor] : objective.optimizer().state().tensors) bytes["optimizer"] += tensor.nbytes();
  }
  return bytes;
}

}  // namespace millrace
