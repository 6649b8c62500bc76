// Adding up gradients over the ranks while the backward pass computes the rest of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

struct GradientSumsOptions {
  std::int64_t bucket_bytes = 25 << 20;  // largest size of gradients that travel together
  bool compress = false;                 // fp32 travels and is added up as bf16
};

// Sums for one set of parameters, which all ranks have in the same order. Watches them from its construction to its destruction;
// the parameters' own gradients are not touched. Used by the loop's thread; gradients may arrive in autograd's threads.
//
// A step: begin() before the backward pass that completes the gradients, then send(), then receive(). All ranks do this in the
// same steps; a rank without gradients begins and sends as well. A gradient that a rank lacks counts as zero.
class GradientSums {
 public:
  struct Traffic {
    std::int64_t buckets = 0;
    std::int64_t early_buckets = 0;  // sent before the backward pass had ended
    std::int64_t bytes = 0;          // sent by this rank
  };

  virtual ~GradientSums() = default;
  // From here on each gradient travels once autograd has added to it, multiplied by `factor`, a scalar of this rank.
  virtual void begin(const at::Tensor& factor) = 0;
  [[nodiscard]] virtual bool has_begun() const noexcept = 0;
  // Sends what has not travelled yet; does not wait.
  virtual void send() = 0;
  // Whether a gradient changed after it had been sent: then receive() does not return the sum.
  [[nodiscard]] virtual bool is_spoiled() const noexcept = 0;
  // The sums over all ranks, in the order, type and memory layout of the parameters, the same bits on all ranks; valid until the
  // next begin(). Waits for all ranks.
  [[nodiscard]] virtual std::vector<at::Tensor> receive() = 0;
  [[nodiscard]] virtual Traffic take_traffic() noexcept = 0;  // since the last call
};

}  // namespace millrace
