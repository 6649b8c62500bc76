// Which weights of an attention are dropped off the CPU.
#pragma once

namespace millrace::kernels {

// LibTorch's fused attention has random numbers of its own: seeded by the site before each call, so that the same call drops the
// same weights, but others than the CPU, and others when a batch is cut another way. Where this is set, and in fp32 without TF32
// for rows of at most 256, attention is made of LibTorch's operations with the CPU's mask: all its scores are kept for the
// backward pass. Of the process; off at first.
void set_counted_attention(bool counted) noexcept;
[[nodiscard]] bool counts_attention() noexcept;

}  // namespace millrace::kernels
