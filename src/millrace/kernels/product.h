// Matrix products summed and stored in fp32, for linear layers. All operands are contiguous and on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// fp32 products need at least this many rows in their result.
inline constexpr std::int64_t kProductRows = 6;

// True if linear() may multiply in fp32 with Millrace's kernels, because a trial (operation_trial.h) chose one of them or has
// yet to decide.
[[nodiscard]] bool own_fp32_products() noexcept;

// x (rows, in) times the transposed w (out, in), plus bias (out) if defined; fp32.
at::Tensor product_with_transposed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);

// x (rows, out) times w (out, in); fp32.
at::Tensor product(const at::Tensor& x, const at::Tensor& w);

// The transposed y (rows, out) times x (rows, in), both fp32 or both bf16; result (out, in) in fp32. column_sums (out), fp32,
// receives y's column sums (bf16 only); column_sums may be undefined.
at::Tensor product_of_transposed(const at::Tensor& y, const at::Tensor& x, const at::Tensor& column_sums);

struct WeightGradients {
  at::Tensor weight, bias;  // fp32; bias is undefined if it was not requested
};
// The products of a linear layer, by the implementations that operation_trial.h selects. x (rows, in), dy (rows, out) and weight
// (out, in) have the same type, fp32 or bf16; x and dy are contiguous.
at::Tensor forward_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight);
WeightGradients weight_gradients(const at::Tensor& dy, const at::Tensor& x, bool wants_bias);

}  // namespace millrace::kernels
