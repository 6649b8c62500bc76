// Which weights of an attention are dropped on devices other than the CPU.
#pragma once

namespace millrace::kernels {

// LibTorch's fused attention has its own random numbers. Its generator is seeded before each forward pass (step/draws.h), so
// that the same pass drops the same weights, but not those of the CPU, and others if a batch is cut differently. If this is set,
// then in fp32 without TF32 and for rows of at most 256, attention is composed of LibTorch's operations with the CPU's mask: all
// its scores are kept for the backward pass. Applies to the process; off at first.
void set_counted_attention(bool counted) noexcept;
[[nodiscard]] bool counts_attention() noexcept;

}  // namespace millrace::kernels
