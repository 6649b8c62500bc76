// Rules about parameters in addition to the loss: norms that are added to the loss, and clamps and shrinkage after each step.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "millrace/core/batch.h"
#include "recipes/neural_response/config.h"

namespace millrace::recipes::neural_response {

// The strength of a rule in an epoch (0-based). constant: lambda. warmup: lambda from start_epoch on, 0 before. linear_ramp:
// rises from 0 at start_epoch to lambda at end_epoch, 0 before. linear_decay: goes from start_lambda at start_epoch to lambda at
// end_epoch.
[[nodiscard]] double lambda_at(const PenaltyConfig& rule, std::uint64_t epoch);
[[nodiscard]] bool is_proximal(PenaltyType type);
// True if a parameter's name contains all parts of one of the rule's patterns; "readouts/std" has two parts.
[[nodiscard]] bool applies_to(const PenaltyConfig& rule, const std::string& parameter);

// The rules of a run, each with the parameters to which it applies.
class Penalties {
 public:
  // Adds a line to `notices` for each rule that applies to no parameter.
  Penalties(const std::vector<PenaltyConfig>& rules, const torch::nn::Module& model, std::vector<std::string>& notices);

  // A term for each norm whose lambda is above 0, with the rule's name: the sum of |w| (l1), of w^2 (l2) or of the norms of the
  // tensors (group_lasso), times lambda in this epoch.
  [[nodiscard]] std::vector<LossTerm> terms(std::uint64_t epoch) const;
  // Called after each update. Changes parameters in place, with the strength of this epoch. proximal_l1 moves every value
  // towards 0 by the strength. The clamps keep values within +-strength, between 0 and the strength, or above the strength.
  void apply(std::uint64_t epoch) const;
  [[nodiscard]] bool any_proximal() const;
  [[nodiscard]] bool follows_epochs() const;  // true: terms() and apply() depend on the epoch
  // True if a rule of type l2 applies to the parameter. Weight decay then leaves the parameter out, even if lambda is 0.
  [[nodiscard]] bool excludes_from_decay(const std::string& parameter) const;

 private:
  struct Rule {
    PenaltyConfig config;
    std::vector<at::Tensor> parameters;
  };
  std::vector<Rule> rules_;
};

}  // namespace millrace::recipes::neural_response
