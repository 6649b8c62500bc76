// Draws samples by weight, with replacement.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::data::detail {

// A table of the running sums of weights. It takes 8 bytes for each weight. A draw is a binary search in the table. A sample
// with weight 0 is never drawn.
class DrawTable {
 public:
  // The weights must be finite and >= 0, and at least one must be above 0: see refuse_bad_weights().
  explicit DrawTable(std::span<const float> weights);
  explicit DrawTable(std::span<const double> weights);
  // Returns the index that a random number in [0, 1) selects.
  [[nodiscard]] std::int64_t operator()(double uniform) const noexcept;
  [[nodiscard]] double sum() const noexcept { return sums_.back(); }

 private:
  std::vector<double> sums_;
};

// Throws ConfigError if `weights` are not valid for `samples` samples: their number differs, one is negative or not finite, or
// all are zero. `label`: the data set and the epoch, for the message.
void refuse_bad_weights(std::span<const float> weights, std::int64_t samples, const std::string& label);

}  // namespace millrace::data::detail
