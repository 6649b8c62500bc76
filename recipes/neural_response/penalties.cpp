#include "recipes/neural_response/penalties.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace::recipes::neural_response {
namespace {

at::Tensor norm_of(PenaltyType type, const at::Tensor& x) {
  switch (type) {
    case PenaltyType::l1:
      return x.abs().sum();
    case PenaltyType::l2:
      return x.square().sum();
    default:
      return x.norm();
  }
}

void project(PenaltyType type, double lambda, at::Tensor& x) {
  switch (type) {
    case PenaltyType::proximal_l1:
      x.copy_(x.sign() * (x.abs() - lambda).clamp_min(0));
      break;
    case PenaltyType::proximal_clamp:
      x.clamp_(-lambda, lambda);
      break;
    case PenaltyType::proximal_clamp_positive:
      x.clamp_(0, lambda);
      break;
    default:
      x.clamp_min_(lambda);
  }
}

// True if lambda is 0 in all epochs.
bool never_acts(const PenaltyConfig& rule) {
  const bool begins_elsewhere = rule.schedule == PenaltySchedule::linear_decay && rule.start_lambda != 0;
  return rule.lambda == 0 && !begins_elsewhere;
}

bool acts(const PenaltyConfig& rule, std::uint64_t epoch) {
  return rule.schedule == PenaltySchedule::constant || static_cast<double>(epoch) >= rule.start_epoch;
}

}  // namespace

double lambda_at(const PenaltyConfig& rule, std::uint64_t epoch) {
  const auto now = static_cast<double>(epoch);
  const double share = rule.end_epoch > rule.start_epoch
                           ? std::clamp((now - rule.start_epoch) / (rule.end_epoch - rule.start_epoch), 0.0, 1.0)
                           : 1.0;
  switch (rule.schedule) {
    case PenaltySchedule::constant:
      return rule.lambda;
    case PenaltySchedule::warmup:
      return now >= rule.start_epoch ? rule.lambda : 0.0;
    case PenaltySchedule::linear_ramp:
      return now >= rule.start_epoch ? rule.lambda * share : 0.0;
    case PenaltySchedule::linear_decay:
      return rule.start_lambda + share * (rule.lambda - rule.start_lambda);
  }
  return 0;
}

bool is_proximal(PenaltyType type) {
  return type != PenaltyType::l1 && type != PenaltyType::l2 && type != PenaltyType::group_lasso;
}

bool applies_to(const PenaltyConfig& rule, const std::string& parameter) {
  return std::ranges::any_of(rule.apply_to, [&](const std::string& pattern) {
    for (std::size_t begin = 0; begin <= pattern.size();) {
      const std::size_t end = std::min(pattern.find('/', begin), pattern.size());
      if (parameter.find(pattern.substr(begin, end - begin)) == std::string::npos) return false;
      begin = end + 1;
    }
    return !pattern.empty();
  });
}

Penalties::Penalties(const std::vector<PenaltyConfig>& rules, const torch::nn::Module& model, std::vector<std::string>& notices) {
  for (const PenaltyConfig& config : rules) {
    Rule rule{config, {}};
    for (const auto& item : model.named_parameters()) {
      if (applies_to(config, item.key())) rule.parameters.push_back(item.value());
    }
    if (rule.parameters.empty())
      notices.push_back("regularization " + quoted(config.name) + " matches no parameter: " + joined(config.apply_to, ", "));
    rules_.push_back(std::move(rule));
  }
}

std::vector<LossTerm> Penalties::terms(std::uint64_t epoch) const {
  std::vector<LossTerm> terms;
  for (const Rule& rule : rules_) {
    if (is_proximal(rule.config.type) || rule.parameters.empty() || never_acts(rule.config)) continue;
    at::Tensor sum;
    for (const at::Tensor& parameter : rule.parameters) {
      const at::Tensor norm = norm_of(rule.config.type, parameter.to(at::kFloat));
      sum = sum.defined() ? sum + norm : norm;
    }
    sum = sum * lambda_at(rule.config, epoch);
    const at::Tensor count = at::ones_like(sum.detach());
    terms.push_back({.sum = std::move(sum), .count = count, .name = rule.config.name});
  }
  return terms;
}

void Penalties::apply(std::uint64_t epoch) const {
  for (const Rule& rule : rules_) {
    if (!is_proximal(rule.config.type) || !acts(rule.config, epoch)) continue;
    const double lambda = lambda_at(rule.config, epoch);
    for (at::Tensor parameter : rule.parameters) project(rule.config.type, lambda, parameter);
  }
}

bool Penalties::any_proximal() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) { return is_proximal(rule.config.type); });
}

bool Penalties::follows_epochs() const {
  return std::ranges::any_of(rules_, [](const Rule& rule) { return rule.config.schedule != PenaltySchedule::constant; });
}

bool Penalties::excludes_from_decay(const std::string& parameter) const {
  return std::ranges::any_of(
      rules_, [&](const Rule& rule) { return rule.config.type == PenaltyType::l2 && applies_to(rule.config, parameter); });
}

}  // namespace millrace::recipes::neural_response
