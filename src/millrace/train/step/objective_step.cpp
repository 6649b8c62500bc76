#include "millrace/train/step/objective_step.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/step/detail/step_sums.h"

namespace millrace {
namespace {

// Keeps only parameters that require a gradient, because other parameters get no gradient from LibTorch.
std::vector<optim::ParameterGroup> groups_of(const Objective& objective, const torch::nn::Module& model) {
  std::vector<optim::ParameterGroup> groups = objective.parameters;
  if (groups.empty()) {
    groups.emplace_back();
    for (const auto& item : model.named_parameters()) groups[0].parameters.push_back({item.key(), item.value()});
  }
  for (optim::ParameterGroup& group : groups)
    std::erase_if(group.parameters, [](const optim::NamedParameter& p) { return !p.value.requires_grad(); });
  std::erase_if(groups, [](const optim::ParameterGroup& group) { return group.parameters.empty(); });
  if (groups.empty()) {
    throw ConfigError({"objective " + quoted(objective.name) + " has nothing to train: no parameter requires a gradient",
                       "Recipe::objectives()", "keep requires_grad on for the parameters that should learn"});
  }
  return groups;
}

at::Tensor shown_of(const LossTerm& term) {
  const at::Tensor& sum = term.report ? term.report->sum : term.sum;
  const at::Tensor& count = term.report ? term.report->count : term.count;
  const at::Tensor mean = sum.detach().to(at::kDouble) / count.detach().to(at::kDouble);
  return term.report && term.report->logarithm ? mean.log() : mean;
}

LossTerm detached(LossTerm term) {
  term.sum = term.sum.detach();
  term.count = term.count.detach();
  if (term.report) term.report = {term.report->sum.detach(), term.report->count.detach(), term.report->logarithm};
  return term;
}

// Returns the count if it is above 0, otherwise 1. So an empty sum can be divided by it.
at::Tensor or_one(const at::Tensor& count) { return at::where(count.gt(0), count, at::ones_like(count)); }

std::int64_t in_units(const optim::OptimConfig& config, std::int64_t steps, std::int64_t steps_per_epoch) {
  if (config.schedule_by == optim::ScheduleUnit::step) return steps;
  return steps / std::max<std::int64_t>(steps_per_epoch, 1);
}

std::int64_t length_of(const optim::OptimConfig& config, const ObjectiveStep::Options& options) {
  if (config.schedule_by == optim::ScheduleUnit::step || options.steps_per_epoch <= 0) return options.total_steps;
  return (options.total_steps + options.steps_per_epoch - 1) / options.steps_per_epoch;
}

}  // namespace

at::Tensor shown(const Loss& loss) {
  if (loss.terms.size() == 1 && loss.terms.front().weight == 1.0 && !loss.terms.front().weight_now.defined())
    return shown_of(loss.terms.front());
  at::Tensor total, counted;
  for (const LossTerm& term : loss.terms) {
    const at::Tensor& count = term.report ? term.report->count : term.count;
    const at::Tensor weighted = term.weight_now.defined() ? shown_of(term) * term.weight_now : shown_of(term) * term.weight;
    const at::Tensor part = at::where(count.detach().gt(0), weighted, 0.0);
    total = total.defined() ? total + part : part;
    counted = counted.defined() ? counted.logical_or(count.gt(0)) : count.gt(0);
  }
  MR_CHECK(total.defined(), "a loss without terms has no value");
  return at::where(counted, total, std::numeric_limits<double>::quiet_NaN());
}

Loss detached(Loss loss) {
  for (LossTerm& term : loss.terms) term = detached(std::move(term));
  for (auto& [name, tensor] : loss.outputs) tensor = tensor.detach();
  return loss;
}

at::Tensor ObjectiveStep::Term::divided(const at::Tensor& sum) const {
  return nominal.defined() ? sum / nominal : sum / nominal_number;
}

at::Tensor ObjectiveStep::Term::nominal_like(const at::Tensor& scalar) const {
  return nominal.defined() ? nominal.to(scalar.options()) : at::full({}, nominal_number, scalar.options());
}

ObjectiveStep::ObjectiveStep(Objective objective, const torch::nn::Module& model, const ObjectiveStep::Options& options)
    : objective_(std::move(objective)), asked_(objective_.optim), options_(options), sums_(std::make_unique<Sums>()) {
  optim::OptimConfig& config = objective_.optim;
  config = optim::settled(config, length_of(config, options), options.global_batch);
  auto groups = groups_of(objective_, model);
  for (const auto& group : groups) {
    for (const auto& parameter : group.parameters) parameters_.push_back(parameter.value);
  }
  if (options.trains && config.ema_decay > 0) average_ = std::make_unique<optim::Average>(groups, config.ema_decay);
  const bool fused = config.fused.is_auto() ? options.fused : options.fused && config.fused.value();
  optimizer_ = std::make_unique<optim::Optimizer>(std::move(groups), config, fused, options.shares);
  if (config.schedule == optim::ScheduleKind::plateau) plateau_.emplace(config);
  if (config.spike_zscore > 0) spike_rule_.emplace(options.device, 2, config.spike_zscore);
  const auto f32 = at::TensorOptions(at::kFloat).device(options.device);
  bad_ = at::zeros({}, f32);
  norm_ = at::zeros({}, f32);
  misfit_ = at::zeros({}, f32);
  spiked_ = at::zeros({}, f32.dtype(at::kDouble));
}

ObjectiveStep::~ObjectiveStep() = default;
ObjectiveStep::ObjectiveStep(ObjectiveStep&&) noexcept = default;

void ObjectiveStep::begin_step(std::int64_t step) {
  *sums_ = {};
  const optim::OptimConfig& config = objective_.optim;
  const std::int64_t now = in_units(config, step - absent_steps_, options_.steps_per_epoch);
  learning_rate_ = optim::learning_rate_at(config, now, length_of(config, options_));
  if (plateau_) learning_rate_ *= plateau_->factor();
  optimizer_->set_learning_rate(learning_rate_);
}

double ObjectiveStep::learning_rate_at(std::int64_t step, std::int64_t total_steps) const {
  ObjectiveStep::Options options = options_;
  options.total_steps = total_steps;
  const std::int64_t length = length_of(asked_, options);
  const optim::OptimConfig config = optim::settled(asked_, length, options.global_batch);
  return optim::learning_rate_at(config, in_units(config, step - absent_steps_, options.steps_per_epoch), length);
}

void ObjectiveStep::drop_step(Agreement* ranks) {
  if (ranks != nullptr && gradient_sums_) static_cast<void>(travelled(ranks->any(gradient_sums_->has_begun())));
  optimizer_->zero_grad();
  *sums_ = {};
}

bool ObjectiveStep::takes_part() const { return !sums_->terms.empty(); }

ObjectiveStep::Term& ObjectiveStep::term_of(const LossTerm& term, std::size_t of) {
  const auto it = std::ranges::find(sums_->terms, term.name, &Term::name);
  if (it != sums_->terms.end()) return *it;
  Term fresh{.name = term.name, .pass = term.per_row ? "" : term.name};
  if (of == 1) {
    fresh.nominal_number = term.nominal_count;
  } else {
    fresh.nominal = or_one(term.count.detach());
  }
  return sums_->terms.emplace_back(std::move(fresh));
}

Loss ObjectiveStep::add(Loss loss, MicroPosition in_step) {
  const bool divides = in_step.only && loss.terms.size() > 1;
  std::vector<std::pair<std::string, at::Tensor>> means;  // each pass's key and the weighted sum of its terms' means
  for (const LossTerm& given : loss.terms) {
    Term& term = term_of(given, loss.terms.size());
    at::Tensor mean = divides ? given.sum / or_one(given.count.detach()) : term.divided(given.sum);
    if (given.weight_now.defined()) {
      mean = mean * given.weight_now;
    } else if (given.weight != 1.0) {
      mean = mean * given.weight;
    }
    const std::string& key = divides ? std::string() : term.pass;
    const auto it = std::ranges::find_if(means, [&](const auto& known) { return known.first == key; });
    if (it == means.end()) {
      means.emplace_back(key, std::move(mean));
    } else {
      it->second = it->second + mean;
    }
  }
  sums_->divided = divides;
  for (std::size_t i = 0; i < means.size(); ++i) backward(means[i].first, means[i].second, i + 1 < means.size(), in_step.last);
  loss = detached(std::move(loss));
  for (const LossTerm& given : loss.terms) {
    Term& term = term_of(given, loss.terms.size());
    // (given.sum - given.sum) is NaN if the loss is not finite. The NaN makes the step bad even if the gradient is finite.
    const at::Tensor count = given.count.to(at::kFloat) + (given.sum - given.sum).to(at::kFloat);
    term.count = term.count.defined() ? term.count + count : count;
    if (!spike_rule_) continue;
    if (!term.seen.sum.defined()) {
      term.seen = given;
      continue;
    }
    term.seen.sum = term.seen.sum + given.sum;
    term.seen.count = term.seen.count + given.count;
    if (given.report)
      term.seen.report = {term.seen.report->sum + given.report->sum, term.seen.report->count + given.report->count,
                          given.report->logarithm};
  }
  return loss;
}

// From here on the sums hold the gradients of each pass separately, and the parameters have no gradients.
void ObjectiveStep::separate(const std::string& key) {
  sums_->passes.push_back({.key = key, .gradients = {}});
  for (at::Tensor& parameter : parameters_) {
    sums_->passes.back().gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
}

void ObjectiveStep::backward(const std::string& key, const at::Tensor& mean, bool keeps_graph, bool last) {
  Sums& sums = *sums_;
  const at::Tensor scaled = scale_ ? mean * scale_->scale() : mean;
  if (sums.passes.empty()) {
    const bool begins = std::ranges::none_of(parameters_, [](const at::Tensor& p) { return p.grad().defined(); });
    if (begins) sums.key = key;
    if (sums.key == key && !keeps_graph) {
      if (last && gradient_sums_) gradient_sums_->begin(sums.first_of(key).nominal_like(bad_));
      return scaled.backward();
    }
    separate(sums.key);
  }
  auto pass = std::ranges::find(sums.passes, key, &Pass::key);
  if (pass == sums.passes.end()) {
    sums.passes.push_back({.key = key, .gradients = std::vector<at::Tensor>(parameters_.size())});
    pass = sums.passes.end() - 1;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = pass->gradients[i];
  scaled.backward({}, keeps_graph);
  for (std::size_t i = 0; i < parameters_.size(); ++i) pass->gradients[i] = std::exchange(parameters_[i].mutable_grad(), {});
}

// Adds up the gradients of all means. A term with the count 0 adds nothing.
void ObjectiveStep::merge_passes() {
  Sums& sums = *sums_;
  for (const Pass& pass : sums.passes) {
    const Term& first = sums.first_of(pass.key);
    const at::Tensor factor = at::where(first.count.eq(0), 0.0, first.nominal_like(first.count) / first.count);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!pass.gradients[i].defined()) continue;
      const at::Tensor part = pass.gradients[i] * factor;
      at::Tensor& whole = parameters_[i].mutable_grad();
      whole = whole.defined() ? whole + part : part;
    }
  }
}

bool ObjectiveStep::host_says_skip() const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
  for (const Pass& pass : sums_->passes) gradients.insert(gradients.end(), pass.gradients.begin(), pass.gradients.end());
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined() && !at::isfinite(gradient.norm()).item<bool>()) return true;
  }
  double counted = 0;
  for (const Term& term : sums_->terms) counted += term.count.item<double>();
  return !(counted > 0);
}

void ObjectiveStep::judge(std::optional<bool> bad_says_host) {
  if (bad_says_host) {
    bad_.fill_(*bad_says_host ? 1.0 : 0.0);
    return;
  }
  const Sums& sums = *sums_;
  at::Tensor nominal, count;
  if (sums.divided || !sums.passes.empty()) {
    merge_passes();
    nominal = at::ones_like(norm_);
    at::Tensor all;
    for (const Term& term : sums.terms) all = all.defined() ? all + term.count : term.count;
    count = all.gt(0).to(at::kFloat) + (all - all);  // (all - all) is NaN if the count is NaN
  } else {
    const Term& first = sums.terms.front();
    nominal = first.nominal_like(norm_);
    count = first.count;
    for (std::size_t i = 1; i < sums.terms.size(); ++i) {
      const Term& other = sums.terms[i];
      const at::Tensor gap = (other.count * nominal - first.count * other.nominal_like(norm_)).abs();
      misfit_.copy_(at::where(gap.gt(1e-4 * first.count * other.nominal_like(norm_)), static_cast<double>(i), misfit_));
      count = count + (other.count - other.count);
    }
  }
  const optim::StepReport report = optimizer_->prepare(scale_ ? nominal / scale_->scale() : nominal, count);
  bad_.copy_(report.found_inf);
  norm_.copy_(report.gradient_norm);
}

std::optional<at::Tensor> ObjectiveStep::spike(const at::Tensor& bad) {
  if (!spike_rule_) return std::nullopt;
  Loss seen;
  for (const Term& term : sums_->terms) seen.terms.push_back(term.seen);
  at::Tensor spike = spike_rule_->judge(at::stack({norm_.to(at::kDouble), shown(seen)}), bad);
  spiked_ += spike;
  return spike;
}

void ObjectiveStep::finish(const at::Tensor& skip, bool applies, const StepContext& context) {
  took_part_ = takes_part();
  if (!took_part_) {
    ++absent_steps_;
    optimizer_->zero_grad();
    return;
  }
  if (applies) optimizer_->apply(skip);
  if (applies && objective_.after_update) objective_.after_update(context);
  optimizer_->zero_grad();
  if (scale_) scale_->update(bad_);
  if (average_) average_->update(skip);
}

void ObjectiveStep::observe_validation(double loss) {
  if (plateau_) plateau_->observe(loss);
}

void ObjectiveStep::use_scale(bool fp16) {
  scale_ = fp16 && options_.trains ? std::make_unique<precision::LossScale>(options_.device) : nullptr;
}

ObjectiveStep::Readings ObjectiveStep::readings() const {
  return {.bad = bad_,
          .norm = norm_,
          .spikes = spiked_,
          .misfit = misfit_,
          .loss_scale = scale_ ? scale_->scale() : at::Tensor(),
          .learning_rate = learning_rate_,
          .took_part = took_part_,
          .traffic = traffic_};
}

}  // namespace millrace
