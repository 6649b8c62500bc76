// Pictures of the loss of single tokens in a validation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "millrace/picture/picture.h"

namespace millrace::recipes::language_model {

// The losses of the first tokens of a validation, in nats. These losses need a second pass over the logits, so at most kMost
// logits are used.
class TokenLosses {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 25;

  // Adds the losses of the first rows of logits (B,T,V) and targets (B,T): as many whole rows as the limit of kMost logits
  // allows. Targets that equal `pad` do not count.
  void add(const at::Tensor& logits, const at::Tensor& targets, std::int64_t pad);
  [[nodiscard]] bool empty() const noexcept { return losses_.empty(); }
  [[nodiscard]] at::Tensor all() const;  // (rows,T) f32; NaN at padding
  [[nodiscard]] std::int64_t classes() const noexcept { return classes_; }

 private:
  std::vector<at::Tensor> losses_;  // (rows,T)
  std::int64_t seen_ = 0;           // number of logits used so far
  std::int64_t classes_ = 0;
};

// Draws the mean loss at each position of the sequence. The picture shows how much the context helps, and whether late positions
// are learnt.
[[nodiscard]] Picture draw_context(const TokenLosses& losses);
// Draws a histogram of the tokens' losses. The picture shows how often the model is sure, and how often it is sure and wrong.
[[nodiscard]] Picture draw_losses(const TokenLosses& losses);

}  // namespace millrace::recipes::language_model
