// How the dropped weights of an attention are drawn on devices other than the CPU.
#pragma once

namespace millrace::kernels {

// LibTorch's fused attention draws its own random numbers. Its generator is seeded before each forward pass (step/draws.h), so
// the same pass drops the same weights again. It does not drop the same weights as the CPU, and the weights that it drops depend
// on how a batch is cut. With `counted`, attention uses the CPU's mask instead: it is composed of LibTorch's operations and
// keeps all its scores for the backward pass. This happens only in fp32 without TF32 and for at most 256 rows. Applies to the
// process; off at first.
void set_counted_attention(bool counted) noexcept;
[[nodiscard]] bool counts_attention() noexcept;

}  // namespace millrace::kernels
