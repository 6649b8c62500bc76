// Adds up gradients over the ranks while the backward pass still computes other gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

struct GradientSumsOptions {
  std::int64_t bucket_bytes = 25 << 20;  // largest size of a bucket, a group of gradients that are sent together
  bool compress = false;                 // true: fp32 gradients are sent and added up as bf16
};

// Sums for one set of parameters, which all ranks have in the same order. The object watches the parameters while it exists; the
// gradients stored in the parameters are not changed. Used by the training loop's thread; gradients may arrive in autograd's
// threads.
//
// Order of calls in a step: begin() before the backward pass that completes the gradients, then send(), then receive(). All
// ranks make these calls in the same steps; a rank without gradients calls begin() and send() as well. A gradient that a rank
// lacks counts as zero.
class GradientSums {
 public:
  struct Traffic {
    std::int64_t buckets = 0;
    std::int64_t early_buckets = 0;  // number of buckets that were sent before the backward pass had ended
    std::int64_t bytes = 0;          // bytes that this rank sent
  };

  virtual ~GradientSums() = default;
  // Starts a step. After this call, as soon as autograd has accumulated a gradient, the gradient is multiplied by this rank's
  // scalar `factor` and sent.
  virtual void begin(const at::Tensor& factor) = 0;
  [[nodiscard]] virtual bool has_begun() const noexcept = 0;
  // Sends the gradients that have not been sent yet; does not wait.
  virtual void send() = 0;
  // Returns true if a gradient changed after it had been sent. receive() then does not return the sum.
  [[nodiscard]] virtual bool is_spoiled() const noexcept = 0;
  // Returns the sums over all ranks, in the order, type and memory layout of the parameters. The sums have the same bits on all
  // ranks and are valid until the next begin(). Waits for all ranks.
  [[nodiscard]] virtual std::vector<at::Tensor> receive() = 0;
  [[nodiscard]] virtual Traffic take_traffic() noexcept = 0;  // returns the traffic since the last take_traffic()
};

}  // namespace millrace
