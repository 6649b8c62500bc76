// Recompute: a part of a network keeps its inputs instead of its inner activations, and runs a second time in the backward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace millrace::nn {

// run(x), with what run keeps for its gradient thrown away and made again when the gradient is wanted. Parameters that `run` uses
// get their gradients as usual. The second pass runs in the first one's autocast state and inside a RecomputeScope (nn/volume.h);
// `run` must be a function of x and of parameters that do not change before the backward pass, and draw no random numbers.
at::Tensor recompute(const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& x);

}  // namespace millrace::nn
