// An objective's sums over the micro-batches of a step. Only objective_step.cpp and objective_step_state.cpp include it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "millrace/train/step/objective_step.h"

namespace millrace {

// A term of the loss, summed over the micro-batches of a step.
struct ObjectiveStep::Term {
  std::string name;
  std::string pass;
  double nominal_number = 0;  // nominal count, if the loss has one term
  at::Tensor nominal;         // the term's count in the first micro-batch, if the loss has several terms
  at::Tensor count;           // f32; NaN if a sum was not finite
  LossTerm seen;              // sums of the logged values, for the spike rule
  [[nodiscard]] at::Tensor divided(const at::Tensor& sum) const;
  [[nodiscard]] at::Tensor nominal_like(const at::Tensor& scalar) const;
};

// Gradients of terms that are divided by the same count, if the step has several groups of such terms.
struct ObjectiveStep::Pass {
  std::string key;
  std::vector<at::Tensor> gradients;  // one for each parameter; undefined = no gradient
};

struct ObjectiveStep::Sums {
  std::vector<Term> terms;
  std::vector<Pass> passes;  // empty: all gradients are in the parameters
  std::string key;           // the pass whose gradients are in the parameters
  bool divided = false;      // true: each sum was divided by its own count
  [[nodiscard]] const Term& first_of(const std::string& pass) const { return *std::ranges::find(terms, pass, &Term::pass); }
};

}  // namespace millrace
