// Turns two silent faults of backward passes into errors.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// Call this before a kernel overwrites x. If a backward pass needs the old values of x, autograd then refuses that pass instead
// of computing with the new values. Does nothing for a view or a part of a larger tensor.
void changes_in_place(const at::Tensor& x);

// Call this first in a backward pass whose gradients have no graph. Throws RecipeError if the caller wants to differentiate the
// gradients again (create_graph), because the second derivatives would lack the part of this operation. The message contains
// `operation`, the operation's name.
void only_first_derivative(const char* operation);

}  // namespace millrace::kernels
