// Adding up gradients over the ranks while the backward pass computes the rest of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

struct GradientSumsOptions {
  std::int64_t bucket_bytes = 25 << 20;  // gradients travel together up to this size
  bool compress = false;                 // fp32 travels as bf16, and is added up in it
};

struct GradientTraffic {
  std::int64_t buckets = 0;
  std::int64_t early_buckets = 0;  // that left before the backward pass had ended
  std::int64_t bytes = 0;          // that this rank gave
};

// Of one set of parameters, which all ranks have in the same order. Watches them from its construction to its destruction; the
// parameters' own gradients are not touched. Used by the loop's thread; gradients may come in autograd's.
//
// A step: begin() before the backward pass that completes the gradients, send() after it, receive(). All ranks do this in the
// same steps; a rank that has nothing to give begins and sends as well. What the gradients of one rank lack is zero.
class GradientSums {
 public:
  virtual ~GradientSums() = default;
  // From here on each gradient travels once autograd has added to it, multiplied by `factor`, a scalar of this rank.
  virtual void begin(const at::Tensor& factor) = 0;
  [[nodiscard]] virtual bool has_begun() const noexcept = 0;
  // What has not travelled yet goes now: waits for nobody.
  virtual void send() = 0;
  // A gradient came a second time after it had left: what receive() gives is not the sum.
  [[nodiscard]] virtual bool is_spoiled() const noexcept = 0;
  // The sums over all ranks, in the order, type and memory layout of the parameters, the same bits on all ranks; valid until the
  // next begin(). Waits for all ranks.
  [[nodiscard]] virtual std::vector<at::Tensor> receive() = 0;
  [[nodiscard]] virtual GradientTraffic take_traffic() noexcept = 0;  // since it was last asked
};

}  // namespace millrace
