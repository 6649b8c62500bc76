// Weighted draws with replacement.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::data::detail {

// Running sums of weights: 8 bytes per weight; a draw is a binary search. Samples with weight 0 are never drawn.
class DrawTable {
 public:
  // Weights are finite and >= 0, at least one is above 0: see refuse_bad_weights().
  explicit DrawTable(std::span<const float> weights);
  explicit DrawTable(std::span<const double> weights);
  [[nodiscard]] std::int64_t operator()(double uniform) const noexcept;  // the index drawn by a number in [0, 1)
  [[nodiscard]] double sum() const noexcept { return sums_.back(); }

 private:
  std::vector<double> sums_;
};

// ConfigError if `weights` are not valid weights for `samples` samples: a different count, a negative or non-finite number, or
// all zero. `label`: names the data set and epoch.
void refuse_bad_weights(std::span<const float> weights, std::int64_t samples, const std::string& label);

}  // namespace millrace::data::detail
