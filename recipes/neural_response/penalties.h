// Rules about parameters in addition to the loss: norms that are added to it, and clamps and shrinkage after each step.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "recipes/neural_response/config.h"

namespace millrace::recipes::neural_response {

// Strength of a rule in an epoch (0-based): constant: lambda; warmup: lambda from start_epoch on, 0 before; linear_ramp: from 0
// at start_epoch to lambda at end_epoch, 0 before; linear_decay: from start_lambda at start_epoch to lambda at end_epoch.
[[nodiscard]] double lambda_at(const PenaltyConfig& rule, std::uint64_t epoch);
[[nodiscard]] bool is_proximal(PenaltyType type);
// Whether a parameter's name contains all parts of one of the rule's patterns ("readouts/std": both words).
[[nodiscard]] bool applies_to(const PenaltyConfig& rule, const std::string& parameter);

// The rules of a run, resolved to parameters once.
class Penalties {
 public:
  // Adds a line to `told` for each rule that matches no parameter.
  Penalties(const std::vector<PenaltyConfig>& rules, const torch::nn::Module& model, std::vector<std::string>& notices);

  // One term per norm with lambda above 0, named after its rule: sum of |w| (l1), of w^2 (l2), of the norms of the tensors
  // (group_lasso), times lambda of the epoch.
  [[nodiscard]] std::vector<LossTerm> terms(std::uint64_t epoch) const;
  // Call after an update; works in place with the epoch's strength: proximal_l1 shrinks every value by it towards 0; the clamps
  // keep values within +-it, between 0 and it, or above it.
  void apply(std::uint64_t epoch) const;
  [[nodiscard]] bool any_proximal() const;
  [[nodiscard]] bool follows_epochs() const;  // false: the epoch does not matter
  // Whether a rule of type l2 covers the parameter: weight decay then leaves it out, even if lambda is 0.
  [[nodiscard]] bool excludes_from_decay(const std::string& parameter) const;

 private:
  struct Rule {
    PenaltyConfig config;
    std::vector<at::Tensor> parameters;
  };
  std::vector<Rule> rules_;
};

}  // namespace millrace::recipes::neural_response
