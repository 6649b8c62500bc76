#include "millrace/nn/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/nn/detail/labels.h"

namespace millrace::nn {

CrossEntropy::CrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {
  std::vector<Problem> problems;
  const double smoothing = options_.label_smoothing;
  if (!(smoothing >= 0.0 && smoothing <= 1.0))
    problems.push_back({"label_smoothing is " + significant(smoothing, 6) + ", out of range", "nn::CrossEntropy", "give 0 to 1"});
  for (std::size_t i = 0; i < options_.class_weights.size(); ++i) {
    const double weight = options_.class_weights[i];
    if (std::isfinite(weight) && weight >= 0.0) continue;
    problems.push_back({"the weight of class " + std::to_string(i) + " is " + significant(weight, 6) + ", out of range",
                        "nn::CrossEntropy", "give 0 or more"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  if (!options_.class_weights.empty())
    weights_ = at::tensor(options_.class_weights, at::kFloat);  // host: once, in the constructor
}

at::Tensor CrossEntropy::weights_for(const at::Tensor& logits) const {
  if (!weights_.defined()) return {};
  if (weights_.size(0) != logits.size(-1)) {
    throw ConfigError({with_commas(weights_.size(0)) + " class weights were given, but the logits have " +
                           with_commas(logits.size(-1)) + " classes",
                       "nn::CrossEntropy", "give one weight for each class"});
  }
  if (weights_.device() != logits.device()) weights_ = weights_.to(logits.device());
  return weights_;
}

LossTerm CrossEntropy::operator()(const at::Tensor& logits, const at::Tensor& labels) const {
  detail::check_labels(logits, labels);
  const at::Tensor weights = weights_for(logits);
  const std::int64_t classes = logits.size(-1);
  at::Tensor known = labels;
  at::Tensor poison;
  if (!labels.is_cpu()) {
    detail::SafeLabels safe = detail::safe_labels(labels, classes, options_.ignore_index);
    known = std::move(safe.labels);
    poison = std::move(safe.poison);
  }
  LossTerm term{.nominal_count = static_cast<double>(std::max<std::int64_t>(labels.numel(), 1))};
  if (!weights.defined() && options_.label_smoothing == 0.0) {
    std::tie(term.sum, term.count) = cross_entropy_sum(logits, known, options_.ignore_index, options_.fused);
  } else {
    const at::Tensor rows = logits.reshape({-1, classes}).to(at::kFloat);
    const at::Tensor flat = known.reshape({-1});
    const at::Tensor counted = flat.ne(options_.ignore_index).to(at::kFloat);
    term.sum = detail::naming_bad_labels(labels, classes, options_.ignore_index, [&] {
      return at::cross_entropy_loss(rows, flat, weights.defined() ? std::optional<at::Tensor>(weights) : std::nullopt,
                                    at::Reduction::Sum, options_.ignore_index, options_.label_smoothing);
    });
    const at::Tensor each = weights.defined() ? weights.gather(0, flat.clamp(0, classes - 1)) * counted : counted;
    term.count = each.sum();
  }
  if (poison.defined()) term.sum = term.sum + poison;
  return term;
}

}  // namespace millrace::nn
