// Draws with replacement by weight.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace millrace::data::detail {

// Running sums of weights: 8 bytes each; a draw is a binary search. Weights of 0 are never drawn.
class DrawTable {
 public:
  // Finite numbers of 0 or more, one of them above 0: see refuse_weights.
  explicit DrawTable(std::span<const float> weights);
  explicit DrawTable(std::span<const double> weights);
  [[nodiscard]] std::int64_t operator()(double uniform) const noexcept;  // of a number in [0, 1)
  [[nodiscard]] double sum() const noexcept { return sums_.back(); }

 private:
  std::vector<double> sums_;
};

// ConfigError, when these are not weights for `samples` samples: another number of them, one that is negative or not finite, none
// above 0. `label`: whose, and of which epoch.
void refuse_bad_weights(std::span<const float> weights, std::int64_t samples, const std::string& label);

}  // namespace millrace::data::detail
