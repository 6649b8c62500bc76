#include "millrace/optim/average.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/error.h"
#include "millrace/kernels/lerp.h"

namespace millrace::optim {

Average::Average(const std::vector<ParameterGroup>& groups, double decay) : decay_(decay) {
  at::Device device = at::kCPU;
  for (const ParameterGroup& group : groups) {
    for (const NamedParameter& parameter : group.parameters) {
      device = parameter.value.device();
      const at::Tensor own = parameter.value.detach();
      // The average of 16-bit weights is fp32: in 16 bits its small steps would round to nothing, and the average would stand
      // still.
      const bool is_short = own.scalar_type() == at::kBFloat16 || own.scalar_type() == at::kHalf;
      weights_[parameter.name] = is_short ? own.to(at::kFloat) : own.clone();
      parameters_.push_back(parameter);
    }
  }
  updates_ = at::zeros({}, at::TensorOptions(at::kFloat).device(device));
}

void Average::update(const at::Tensor& skip) {
  const at::NoGradGuard no_grad;
  const at::Tensor counts = 1.0 - skip;
  const at::Tensor n = updates_.to(at::kDouble);  // double, because 1 - .9999 loses three digits in float
  const at::Tensor weight = (1.0 - ((n + 1.0) / (n + 10.0)).clamp_max(decay_)) * counts;
  std::vector<at::Tensor> averages, values;
  for (const NamedParameter& parameter : parameters_) {
    averages.push_back(weights_.at(parameter.name));
    values.push_back(parameter.value.detach().to(averages.back().scalar_type()));
  }
  kernels::lerp(averages, values, weight);
  updates_.add_(counts);
}

void Average::load(const Tensors& weights, const at::Tensor& updates) {
  const auto refuse = [](const std::string& what) {
    throw SnapshotError({.what = what,
                         .where = "snapshot, averaged weights",
                         .next = "resume with the model and the optim.ema_decay of the run, or start with --fresh"});
  };
  for (const auto& [name, own] : weights_) {
    const auto it = weights.find(name);
    if (it == weights.end()) refuse("the averaged weights lack " + name);
    if (it->second.sizes() != own.sizes()) refuse("the averaged weight " + name + " has another shape than the model's");
  }
  if (!updates.defined() || updates.dim() != 0) refuse("the averaged weights lack the number of updates");
  const at::NoGradGuard no_grad;
  for (const auto& [name, own] : weights_) own.copy_(weights.at(name));
  updates_.copy_(updates);
}

AverageInUse::AverageInUse(const Average& average) {
  for (const NamedParameter& parameter : average.parameters_) {
    originals_.emplace_back(parameter.value, parameter.value.detach());
    parameter.value.set_data(average.weights_.at(parameter.name).to(parameter.value.scalar_type()));
  }
}

AverageInUse::~AverageInUse() {
  for (auto& [parameter, memory] : originals_) parameter.set_data(memory);
}

}  // namespace millrace::optim
