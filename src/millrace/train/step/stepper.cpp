#include "millrace/train/step/stepper.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/finally.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/device/operation_census.h"
#include "millrace/memory/block.h"
#include "millrace/memory/offload.h"
#include "millrace/nn/batch_norm.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/step/draws.h"
#include "millrace/train/step/trial_gradients.h"

namespace millrace {
namespace {

using telemetry::Phase;
using telemetry::Span;

constexpr std::int64_t kTimedEvery = 8, kTimedFrom = 4;  // steps whose blocks are timed; the first are a warm-up

std::vector<at::Tensor> roots_of(const Loss& loss) {
  std::vector<at::Tensor> roots;
  for (const LossTerm& term : loss.terms) roots.push_back(term.sum);
  return roots;
}

}  // namespace

void refuse_absence(const Batch& batch) {
  throw RecipeError({"no objective has a loss in the first step: each loss function returned nullopt",
                     "Objective::loss, " + to_text(batch.origin()) + "\nfields: " + to_text(batch),
                     "return a Loss from at least one"});
}

Stepper::Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, const StepperOptions& options)
    : recipe_(recipe),
      switches_(switches),
      timeline_(timeline),
      options_(options),
      buffers_(options.trains ? recipe.model().buffers() : std::vector<at::Tensor>()) {
  memory::take_over_backward_passes();
  const ObjectiveStepOptions step{.device = options.device,
                                  .fused = switches.on("fused_optimizer"),
                                  .trains = options.trains,
                                  .total_steps = options.total_steps,
                                  .steps_per_epoch = options.steps_per_epoch,
                                  .global_batch = options.global_batch,
                                  .gradients = options.gradients,
                                  .shares = options.shards_optimizer && options.trains ? options.agreement : nullptr};
  std::vector<Objective> objectives = recipe.objectives();
  if (objectives.empty()) throw RecipeError({"the recipe has no objective", "objectives()", "return at least one"});
  for (Objective& objective : objectives) objectives_.emplace_back(std::move(objective), recipe.model(), step);
  if (sums_gradients()) nn::share_batch_norms(recipe.model(), options.agreement);
  const auto f64 = at::TensorOptions(at::kDouble).device(options_.device);
  skipped_ = at::zeros({}, f64);
  skipped_in_a_row_ = at::zeros({}, f64);
  set_autocast(options_.autocast);
}

Stepper::~Stepper() = default;

Agreement& Stepper::agreement() const { return options_.agreement == nullptr ? Agreement::of_one() : *options_.agreement; }

void Stepper::begin_step(std::int64_t step) {
  step_ = step;
  buffers_.begin();
  forget_micro_batches();
  for (ObjectiveStep& objective : objectives_) objective.begin_step(step);
}

void Stepper::forget_micro_batches() {
  for (ObjectiveStep& objective : objectives_) objective.forget();
}

std::optional<Loss> Stepper::forward(ObjectiveStep& objective, const Batch& batch, const Tensors& earlier, bool training,
                                     std::optional<at::ScalarType> autocast) {
  const Doing doing(Doing::Level::phase, "forward");
  seed_draws(options_.device, options_.seed, Draws::loss, batch, static_cast<std::uint64_t>(&objective - objectives_.data()));
  const device::Autocast guard(options_.device.type(), autocast);
  const StepContext context{
      .step = step_, .epoch = batch.epoch(), .total_steps = options_.total_steps, .training = training, .earlier = &earlier};
  std::optional<memory::OffloadScope> offload;
  if (training && options_.offload_bytes > 0) {
    offload.emplace(options_.device, options_.offload_bytes, recipe_.model().parameters());
  }
  std::optional<memory::BlockScope> blocks;
  if (training) blocks.emplace(options_.recompute, options_.device, blocks_.watcher, blocks_.known ? nullptr : &blocks_.names);
  return objective.spec().loss(batch, context);
}

memory::BlockClock* Stepper::clock_of_step() {
  const bool now = blocks_.timed && !blocks_.trying && step_ % kTimedEvery == kTimedFrom;
  return now ? &blocks_.clock : nullptr;
}

StepResult Stepper::accumulate(const Batch& batch, MicroPlace in_step) {
  const RandomScope random(options_.seed, batch);
  epoch_ = batch.epoch();
  StepResult result;
  Tensors earlier;
  for (ObjectiveStep& objective : objectives_) {
    freeze_all_but(objective);
    const Doing subject(Doing::Level::subject, objective.spec().name.c_str());
    std::optional<Loss> loss;
    {
      const Span span(timeline_, Phase::forward);
      const memory::ForwardWatch watch(clock_of_step());
      loss = forward(objective, batch, earlier, true, options_.autocast);
    }
    if (loss) {
      const Span span(timeline_, Phase::backward);
      const memory::BackwardWatch watch(clock_of_step(), roots_of(*loss));
      in_backward_pass(objective.spec().name, batch, [&] {
        loss = objective.add(std::move(*loss), {.only = in_step.only && !sums_gradients(), .last = in_step.last});
      });
    }
    result.losses.push_back(loss ? std::move(*loss) : Loss{});
    for (const auto& [name, tensor] : result.losses.back().outputs) earlier[name] = tensor;
  }
  unfreeze();
  if (!std::exchange(blocks_.known, true) && !blocks_.trying) check_blocks(options_.recompute);
  return result;
}

// What each objective's gradients are like; true when the host, asked by device_skip off, says that the step does not count.
bool Stepper::judge_objectives() {
  static const telemetry::Counter on_device("device_skip");
  const bool asks_host = !switches_.on("device_skip");
  if (!asks_host) on_device.add(1);
  std::vector<bool> bad;
  for (const ObjectiveStep& objective : objectives_)
    bad.push_back(asks_host && objective.takes_part() && objective.host_says_skip());
  const bool skips = std::find(bad.begin(), bad.end(), true) != bad.end();
  for (std::size_t i = 0; i < objectives_.size(); ++i) {
    if (objectives_[i].takes_part()) objectives_[i].judge(skips ? std::optional<bool>(bad[i]) : std::nullopt);
  }
  return skips;
}

void Stepper::update() {
  const Span span(timeline_, Phase::optimizer);
  const at::NoGradGuard no_grad;
  if (sums_gradients()) {
    const Span reduction(timeline_, Phase::reduction);
    for (ObjectiveStep& objective : objectives_) objective.sum_over(agreement());
  }
  const bool host_skips = judge_objectives();
  at::Tensor bad = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
  for (const ObjectiveStep& objective : objectives_) {
    if (objective.takes_part()) bad = at::maximum(bad, objective.bad());
  }
  at::Tensor skip = bad;
  for (ObjectiveStep& objective : objectives_) {
    if (!objective.takes_part()) continue;
    if (const auto spike = objective.spike(bad)) skip = at::maximum(skip, *spike);
  }
  const StepContext context{.step = step_, .epoch = epoch_, .total_steps = options_.total_steps};
  for (ObjectiveStep& objective : objectives_) objective.finish(skip, !host_skips, context);
  buffers_.settle(skip);
  tally(bad);
}

void Stepper::tally(const at::Tensor& bad) {
  skipped_ += bad;
  skipped_in_a_row_ = (skipped_in_a_row_ + 1) * bad;
  if (overflow_) overflow_->update(bad, skipped_in_a_row_, smallest_scale());
}

at::Tensor Stepper::smallest_scale() const {
  at::Tensor smallest;
  for (const ObjectiveStep& objective : objectives_) {
    if (objective.scale() != nullptr)
      smallest = smallest.defined() ? at::minimum(smallest, objective.scale()->scale()) : objective.scale()->scale();
  }
  return smallest;
}

std::vector<ObjectiveReport> Stepper::reports() const {
  std::vector<at::Tensor> values;
  for (const ObjectiveStep& objective : objectives_) {
    values.push_back(objective.norm().to(at::kDouble));
    values.push_back(objective.spikes());
    values.push_back(objective.scale() == nullptr ? at::ones_like(objective.spikes())
                                                  : objective.scale()->scale().to(at::kDouble));
  }
  const at::Tensor host = at::stack(values).to(at::kCPU);
  const auto* value = host.const_data_ptr<double>();
  std::vector<ObjectiveReport> reports;
  for (const ObjectiveStep& objective : objectives_) {
    if (const auto misfit = objective.misfit()) throw RecipeError({*misfit, "LossTerm::per_row", "leave per_row out there"});
    reports.push_back({.name = objective.spec().name,
                       .learning_rate = objective.learning_rate(),
                       .gradient_norm = value[0],
                       .spikes = value[1],
                       .loss_scale = objective.scale() == nullptr ? std::nullopt : std::optional(value[2]),
                       .present = objective.took_part()});
    value += 3;
  }
  return reports;
}

void Stepper::set_autocast(std::optional<at::ScalarType> autocast) {
  options_.autocast = autocast;
  overflow_.reset();
  if (autocast && options_.trains) overflow_.emplace(options_.device, *autocast);
  for (ObjectiveStep& objective : objectives_) objective.use_scale(autocast == at::kHalf);
}

GradientTraffic Stepper::traffic() const {
  GradientTraffic all;
  for (const ObjectiveStep& objective : objectives_) {
    all.buckets += objective.traffic().buckets;
    all.early_buckets += objective.traffic().early_buckets;
    all.bytes += objective.traffic().bytes;
  }
  return all;
}

std::optional<std::string> Stepper::overflow() const {
  return overflow_ && overflow_->given_up() ? std::optional(overflow_->reason()) : std::nullopt;
}

bool Stepper::is_finite() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors = recipe_.model().parameters();
  for (at::Tensor& buffer : buffers_.moving()) tensors.push_back(std::move(buffer));
  std::erase_if(tensors, [](const at::Tensor& t) { return t.numel() == 0 || !at::isFloatingType(t.scalar_type()); });
  if (tensors.empty()) return true;
  std::vector<at::Tensor> largest = at::_foreach_norm(tensors, std::numeric_limits<double>::infinity());
  for (at::Tensor& one : largest) one = one.to(at::kDouble);
  return at::isfinite(at::stack(largest)).all().item<bool>();
}

Tensors Stepper::averaged_weights() const {
  Tensors all;
  for (const ObjectiveStep& objective : objectives_) {
    if (objective.average() != nullptr) all.insert(objective.average()->weights().begin(), objective.average()->weights().end());
  }
  return all;
}

std::vector<optim::AverageInUse> Stepper::use_average() const {
  std::vector<optim::AverageInUse> lent;
  for (const ObjectiveStep& objective : objectives_) {
    if (objective.average() != nullptr) lent.emplace_back(*objective.average());
  }
  return lent;
}

StepResult Stepper::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  StepResult result;
  Tensors earlier;
  for (ObjectiveStep& objective : objectives_) {
    std::optional<Loss> loss = forward(objective, batch, earlier, false, options_.autocast);
    result.losses.push_back(loss ? detached(std::move(*loss)) : Loss{});
    for (const auto& [name, tensor] : result.losses.back().outputs) earlier[name] = tensor;
  }
  return result;
}

precision::Trial Stepper::try_precision(const Batch& batch, std::optional<at::ScalarType> autocast) {
  return try_precision(batch, autocast, autocast ? TrialRole::compared : TrialRole::reference);
}

precision::Trial Stepper::try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, TrialRole role) {
  const std::string what = "a trial of " + precision::name_of(autocast);
  const Doing task(Doing::Level::task, what.c_str());
  if (autocast != at::kHalf) return try_scaled(batch, autocast, 1.0, role);
  precision::Trial trial;
  for (const double scale : {65536.0, 4096.0, 256.0}) {  // where a run's own scale would soon settle
    trial = try_scaled(batch, autocast, scale, role);
    if (std::isfinite(trial.gradient_norm)) break;
  }
  return trial;
}

precision::Trial Stepper::try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale, TrialRole role) {
  buffers_.begin();
  std::vector<precision::Trial> trials = finally([&] { return try_objectives(batch, autocast, scale, role); },
                                                 [this] {
                                                   unfreeze();
                                                   for (ObjectiveStep& objective : objectives_) objective.optimizer().zero_grad();
                                                   buffers_.put_back();
                                                 });
  if (trials.empty()) refuse_absence(batch);
  precision::Trial trial = std::move(trials.front());
  trial.others.assign(std::make_move_iterator(trials.begin() + 1), std::make_move_iterator(trials.end()));
  for (const precision::Trial& other : trial.others) {
    trial.step_ms += other.step_ms;
    *trial.busy_ms += *other.busy_ms;
  }
  if (!options_.device.is_cpu()) trial.busy_ms.reset();
  return trial;
}

std::vector<precision::Trial> Stepper::try_objectives(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                                      TrialRole role) {
  WorkClock clock;
  const RandomScope random(options_.seed, batch);
  trial_reference_.resize(objectives_.size());
  std::vector<precision::Trial> trials;
  Tensors earlier;
  for (std::size_t i = 0; i < objectives_.size(); ++i) {
    freeze_all_but(objectives_[i]);
    clock.start();
    std::optional<Loss> loss = forward(objectives_[i], batch, earlier, true, autocast);
    if (!loss) continue;
    in_backward_pass(objectives_[i].spec().name, batch, [&] { trials.push_back(try_objective(i, *loss, scale, role, clock)); });
    for (const auto& [name, tensor] : loss->outputs) earlier[name] = tensor.detach();
  }
  return trials;
}

precision::Trial Stepper::try_objective(std::size_t i, const Loss& loss, double scale, TrialRole role, WorkClock& clock) {
  const ObjectiveStep& objective = objectives_[i];
  const Doing doing(Doing::Level::phase, "backward");
  at::Tensor total;
  for (const LossTerm& term : loss.terms) {
    const at::Tensor mean = term.sum / term.nominal_count * (scale * term.weight);
    total = total.defined() ? total + mean : mean;
  }
  total.backward();
  std::vector<at::Tensor> gradients, norms;
  for (const at::Tensor& parameter : objective.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() && scale != 1.0 ? gradient / scale : gradient);
    if (gradient.defined()) norms.push_back(gradients.back().norm().to(at::kFloat));
  }
  precision::Trial trial;
  if (objectives_.size() > 1) trial.objective = objective.spec().name;
  {
    const device::ExpectedReads of_the_trial;  // a step of the run asks for neither
    trial.loss = shown(loss).item<double>();
    trial.gradient_norm = norms.empty() ? 0.0 : at::stack(norms).norm().item<double>();
  }
  const WorkTime time = clock.stop();  // comparing is no part of a step
  trial.step_ms = time.wall;
  trial.busy_ms = time.busy;
  if (role == TrialRole::reference) {
    trial_reference_[i] = std::move(gradients);
    return trial;
  }
  const GradientDifference difference = compare_gradients(objective.optimizer().groups(), gradients, trial_reference_[i]);
  trial.gradient_cosine = difference.cosine;
  trial.worst_gradient = difference.worst;
  trial.worst_parameter = difference.parameter;
  return trial;
}

void Stepper::freeze_all_but(const ObjectiveStep& objective) {
  if (objectives_.size() == 1) return;
  for (const ObjectiveStep& other : objectives_) {
    for (const at::Tensor& parameter : other.parameters()) parameter.set_requires_grad(false);
  }
  for (const at::Tensor& parameter : objective.parameters()) parameter.set_requires_grad(true);
}

void Stepper::unfreeze() {
  if (objectives_.size() == 1) return;
  for (const ObjectiveStep& objective : objectives_) {
    for (const at::Tensor& parameter : objective.parameters()) parameter.set_requires_grad(true);
  }
}

void Stepper::observe_validation(double loss) {
  for (ObjectiveStep& objective : objectives_) objective.observe_validation(loss);
}

}  // namespace millrace
