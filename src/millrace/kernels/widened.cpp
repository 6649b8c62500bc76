#include "millrace/kernels/widened.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "millrace/kernels/backward_rules.h"

namespace millrace::kernels {
namespace {

at::Tensor computed(const at::Tensor& x, const Plain& plain) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return plain(x);
}

struct WidenedFunction : torch::autograd::Function<WidenedFunction> {
  // Holds `plain`, so that autograd keeps it from the forward to the backward pass.
  struct Held : torch::CustomClassHolder {
    explicit Held(Plain of) : plain(std::move(of)) {}
    Plain plain;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const Plain& plain) {
    context->save_for_backward({x});
    context->saved_data["plain"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(plain));
    return computed(wide(x), plain).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    only_first_derivative("a norm, pooling or activation");
    const at::Tensor x = context->get_saved_variables()[0];
    const Plain& plain = static_cast<const Held&>(*context->saved_data["plain"].toCapsule()).plain;
    const at::AutoGradMode on(true);
    const at::Tensor input = wide(x.detach()).detach().requires_grad_();
    const at::Tensor output = computed(input, plain);
    const auto of_input = torch::autograd::grad({output}, {input}, {gradients[0].to(output.scalar_type())});
    return {of_input[0].to(x.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor wide(const at::Tensor& x) {
  const bool is_narrow = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return is_narrow ? x.to(at::kFloat) : x;
}

at::Tensor widened(const at::Tensor& x, const Plain& plain) { return WidenedFunction::apply(x, plain); }

}  // namespace millrace::kernels
