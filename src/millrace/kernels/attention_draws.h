// How the dropped weights of an attention are drawn on devices other than the CPU.
#pragma once

namespace millrace::kernels {

// LibTorch's fused attention draws its own random numbers. Its generator is seeded before each forward pass (step/draws.h), so a
// repeated pass drops the same weights. But the dropped weights differ from those on a CPU, and they depend on how a batch is
// cut. If `counted` is true, attention with dropout uses the CPU's mask instead. If `counted` is false, only these cases use the
// CPU's mask: fp64, and fp32 without TF32 for at most 256 rows. Attention with the CPU's mask is composed of LibTorch's
// operations and keeps all its scores for the backward pass. The setting applies to the process; off at first.
void set_counted_attention(bool counted) noexcept;
[[nodiscard]] bool counts_attention() noexcept;

}  // namespace millrace::kernels
