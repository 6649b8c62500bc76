#include "millrace/kernels/backward_rules.h"

#include <ATen/core/grad_mode.h>

#include <string>

#include "millrace/base/error.h"

namespace millrace::kernels {

void changes_in_place(const at::Tensor& x) {
  // Does nothing for a part of a larger tensor, because all parts share one version counter and the other parts do not change.
  // Does nothing for a view either: if the version of a view rises, autograd builds a new history for it, without the operation
  // that made the view.
  if (!x.is_view() && x.storage().nbytes() == x.nbytes()) x.unsafeGetTensorImpl()->bump_version();
}

void only_first_derivative(const char* operation) {
  if (!at::GradMode::is_enabled()) return;  // autograd enables GradMode in a backward pass only with create_graph
  throw RecipeError({"the gradient of " + std::string(operation) +
                         " is to be differentiated again (create_graph), but fused operations have first derivatives only",
                     "backward pass of " + std::string(operation),
                     "pass nn::Fused::plain() to the functions of nn in this part of the model; ATen's operations, which then "
                     "run, have all derivatives"});
}

}  // namespace millrace::kernels
