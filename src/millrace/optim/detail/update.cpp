#include "millrace/optim/detail/update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include "millrace/device/device.h"

namespace millrace::optim::detail {

namespace {

// Overwrites `old` unless the step is skipped. The function selects on the device, so that a skipped step changes no bit.
void store(const at::Tensor& old, const at::Tensor& fresh, const at::Tensor& skip) {
  old.copy_(at::where(skip, old, fresh.to(old.scalar_type())));
}

at::ScalarType compute_dtype(const at::Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

void plain_adam(const OptimConfig& config, double weight_decay, const Lists& lists, std::size_t i, const Scalars& scalars) {
  const at::ScalarType dtype = compute_dtype(lists.parameters[i]);
  const at::Tensor skip = scalars.found_inf.to(at::kBool);
  const double beta1 = config.betas[0];
  const double beta2 = config.betas[1];
  at::Tensor value = lists.parameters[i].to(dtype);
  at::Tensor gradient = lists.gradients[i].to(dtype) / scalars.scale;
  if (weight_decay != 0.0) {
    if (config.name == Algorithm::adamw) {
      value = value * (1.0 - scalars.learning_rate * weight_decay);
    } else {
      gradient = gradient + value * weight_decay;
    }
  }
  const at::Tensor first = at::lerp(lists.first[i].to(dtype), gradient.to(dtype), 1.0 - beta1);
  const at::Tensor second = lists.second[i].to(dtype) * beta2 + gradient * gradient * (1.0 - beta2);
  const at::Tensor step = lists.steps[i].to(at::kDouble);  // double, because 1 - beta^step would keep only four digits in float
  const at::Tensor step_size = scalars.learning_rate / (1.0 - at::pow(beta1, step));
  const at::Tensor spread = second.sqrt() / (1.0 - at::pow(beta2, step)).sqrt() + config.eps;
  store(lists.parameters[i], value - step_size * first / spread, skip);
  store(lists.first[i], first, skip);
  store(lists.second[i], second, skip);
}

void plain_sgd(const OptimConfig& config, double weight_decay, const Lists& lists, std::size_t i, const Scalars& scalars) {
  const at::ScalarType dtype = compute_dtype(lists.parameters[i]);
  const at::Tensor skip = scalars.found_inf.to(at::kBool);
  const at::Tensor value = lists.parameters[i].to(dtype);
  at::Tensor direction = lists.gradients[i].to(dtype) / scalars.scale;
  if (weight_decay != 0.0) direction = direction + value * weight_decay;
  if (!lists.first.empty()) {
    direction = lists.first[i].to(dtype) * config.momentum + direction;
    store(lists.first[i], direction, skip);
  }
  store(lists.parameters[i], value - scalars.learning_rate * direction, skip);
}

}  // namespace

void update_fused(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars) {
  if (config.name == Algorithm::sgd) {
    // is_first_step would only mean that buffers are uninitialised. Millrace's buffers start as zeros, which gives the same
    // first step.
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.first, weight_decay, config.momentum, scalars.learning_rate,
                    /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false, scalars.scale,
                    scalars.found_inf);
    return;
  }
  const auto update =
      config.name == Algorithm::adamw ? &at::_ops::_fused_adamw__tensor_lr::call : &at::_ops::_fused_adam__tensor_lr::call;
  update(lists.parameters, lists.gradients, lists.first, lists.second, /*max_exp_avg_sqs=*/{}, lists.steps, scalars.learning_rate,
         config.betas[0], config.betas[1], weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false, scalars.scale,
         scalars.found_inf);
}

void update_plain(const OptimConfig& config, double weight_decay, Lists& lists, const Scalars& scalars) {
  for (std::size_t i = 0; i < lists.parameters.size(); ++i) {
    if (config.name == Algorithm::sgd) {
      plain_sgd(config, weight_decay, lists, i, scalars);
    } else {
      plain_adam(config, weight_decay, lists, i, scalars);
    }
  }
}

at::ScalarType learning_rate_dtype(const at::Device& device) {
  return device::nature_of(device).has_float_rate ? at::kFloat : at::kDouble;
}

}  // namespace millrace::optim::detail
