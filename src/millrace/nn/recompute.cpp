#include "millrace/nn/recompute.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/device/autocast.h"
#include "millrace/nn/volume.h"

namespace millrace::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the second pass needs, handed through autograd's saved data.
struct Again : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> run;
  std::optional<at::ScalarType> autocast;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  // `anchor` needs a gradient whatever x does, so that parameters inside get theirs.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<Again>& again) {
    context->save_for_backward({x});
    context->saved_data["again"] = c10::IValue::make_capsule(again);
    const at::NoGradGuard no_grad;
    return again->run(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto again = c10::static_intrusive_pointer_cast<Again>(context->saved_data["again"].toCapsule());
    const at::Tensor saved = context->get_saved_variables()[0];
    at::Tensor x = saved.detach();
    x.set_requires_grad(context->needs_input_grad(0));
    at::Tensor y;
    {
      const at::AutoGradMode with_grad(true);
      const device::Autocast autocast(x.device().type(), again->autocast);
      const RecomputeScope second_pass;
      y = again->run(x);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), {}, {}};
  }
};

}  // namespace

at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& x) {
  if (!at::GradMode::is_enabled()) return run(x);
  const auto device = x.device().type();
  const auto again = c10::make_intrusive<Again>();
  again->run = run;
  if (at::autocast::is_autocast_enabled(device)) again->autocast = at::autocast::get_autocast_dtype(device);
  const at::Tensor anchor = x.new_zeros({1}).set_requires_grad(true);
  return RecomputeFunction::apply(x, anchor, again);
}

}  // namespace millrace::nn
