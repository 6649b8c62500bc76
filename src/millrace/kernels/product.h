// Matrix products summed and stored in fp32, for linear layers. All operands contiguous, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::kernels {

// fp32 products need at least this many rows in their result.
inline constexpr std::int64_t kProductRows = 6;

// Whether linear() multiplies in fp32 itself: one of its products is ours (operation_trial.h), or a trial still has to decide.
[[nodiscard]] bool own_fp32_products() noexcept;

// x (rows, in) times w (out, in)^T, plus bias (out) if defined; fp32.
at::Tensor product_with_transposed(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias);

// x (rows, out) times w (out, in); fp32.
at::Tensor product(const at::Tensor& x, const at::Tensor& w);

// y (rows, out)^T times x (rows, in), both fp32 or both bf16: (out, in) in fp32. column_sums: undefined, or (out) fp32 that gets
// y's column sums (bf16 only).
at::Tensor product_of_transposed(const at::Tensor& y, const at::Tensor& x, const at::Tensor& column_sums);

struct WeightGradients {
  at::Tensor weight, bias;  // fp32; bias undefined if not requested
};
// The products of a linear layer by the implementations that operation_trial.h selects. x (rows, in) and dy (rows, out),
// contiguous, and weight (out, in) have the same type, fp32 or bf16.
at::Tensor forward_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight);
WeightGradients weight_gradients(const at::Tensor& dy, const at::Tensor& x, bool wants_bias);

}  // namespace millrace::kernels
