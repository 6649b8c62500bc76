#include "millrace/train/step/detail/trial_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

struct Pair {
  const std::string* name;
  at::Tensor own, reference;
};

std::vector<Pair> pairs_of(const std::vector<optim::ParameterGroup>& groups, const std::vector<at::Tensor>& gradients,
                           const std::vector<at::Tensor>& reference) {
  std::vector<Pair> pairs;
  std::size_t i = 0;
  for (const optim::ParameterGroup& group : groups) {
    for (const optim::NamedParameter& parameter : group.parameters) {
      const bool both = i < gradients.size() && i < reference.size() && gradients[i].defined() && reference[i].defined();
      if (both) pairs.push_back({&parameter.name, gradients[i], reference[i]});
      ++i;
    }
  }
  return pairs;
}

}  // namespace

GradientDifference compare_gradients(const std::vector<optim::ParameterGroup>& groups, const std::vector<at::Tensor>& gradients,
                                     const std::vector<at::Tensor>& reference) {
  const at::NoGradGuard no_grad;
  const std::vector<Pair> pairs = pairs_of(groups, gradients, reference);
  if (pairs.empty()) return {};
  std::vector<at::Tensor> sums;  // for each pair of gradient g and reference r: sums of g * r, g², r², (g - r)²
  double elements = 0;
  for (const Pair& pair : pairs) {
    const auto sum = [&](const at::Tensor& products) { sums.push_back(products.sum(at::kDouble)); };
    sum(pair.own * pair.reference);
    sum(pair.own.square());
    sum(pair.reference.square());
    sum((pair.own - pair.reference).square());
    elements += static_cast<double>(pair.own.numel());
  }
  const at::Tensor host = at::stack(sums).cpu();
  const auto* value = host.const_data_ptr<double>();
  double product = 0, squares = 0, expected_squares = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    product += value[4 * i];
    squares += value[4 * i + 1];
    expected_squares += value[4 * i + 2];
  }
  GradientDifference difference;
  if (squares > 0 && expected_squares > 0) difference.cosine = product / std::sqrt(squares * expected_squares);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const double share = static_cast<double>(pairs[i].own.numel()) / elements;
    const double size = std::sqrt(std::max(value[4 * i + 2], kGradientFloor * kGradientFloor * expected_squares * share));
    const double error = value[4 * i + 3] == 0 ? 0 : std::sqrt(value[4 * i + 3]) / size;
    const bool is_worse = difference.parameter.empty() || !(error <= difference.worst);
    if (!is_worse || std::isnan(difference.worst)) continue;
    difference.worst = error;
    difference.parameter = *pairs[i].name;
  }
  return difference;
}

}  // namespace millrace
