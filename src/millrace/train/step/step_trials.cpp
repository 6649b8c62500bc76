#include "millrace/train/step/step_trials.h"

#include <torch/nn/module.h>

#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/finally.h"
#include "millrace/core/random.h"
#include "millrace/device/operation_census.h"
#include "millrace/system/signals.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/recipe/stray_leaves.h"
#include "millrace/train/step/detail/trial_gradients.h"

namespace millrace {

precision::Trial StepTrials::try_precision(const Batch& batch, std::optional<at::ScalarType> autocast) {
  return try_precision(batch, autocast, autocast ? StepTrials::Role::compared : StepTrials::Role::reference);
}

precision::Trial StepTrials::try_precision(const Batch& batch, std::optional<at::ScalarType> autocast, Role role) {
  stop_if_signalled();
  if (time_ != nullptr) time_->begin_step();
  const std::string what = "a trial of " + precision::name_of(autocast);
  const Doing task(Doing::Level::task, what.c_str());
  if (autocast != at::kHalf) return try_scaled(batch, autocast, 1.0, role);
  precision::Trial trial;
  for (const double scale : {65536.0, 4096.0, 256.0}) {  // loss scales that a run would soon reach
    trial = try_scaled(batch, autocast, scale, role);
    if (std::isfinite(trial.gradient_norm)) break;
  }
  return trial;
}

precision::Trial StepTrials::try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                        StepTrials::Role role) {
  stepper_.buffers_.begin();
  std::vector<precision::Trial> trials =
      finally([&] { return try_objectives(batch, autocast, scale, role); }, [this] { stepper_.drop_step(nullptr); });
  if (trials.empty()) refuse_absence(batch);
  precision::Trial trial = std::move(trials.front());
  trial.others.assign(std::make_move_iterator(trials.begin() + 1), std::make_move_iterator(trials.end()));
  for (const precision::Trial& other : trial.others) {
    trial.step_ms += other.step_ms;
    *trial.busy_ms += *other.busy_ms;
  }
  if (time_ != nullptr) time_->made_step(1e-3 * trial.step_ms);
  if (!stepper_.options_.device.is_cpu()) trial.busy_ms.reset();
  return trial;
}

std::vector<precision::Trial> StepTrials::try_objectives(const Batch& batch, std::optional<at::ScalarType> autocast, double scale,
                                                         StepTrials::Role role) {
  WorkClock clock;
  const RandomScope random(stepper_.options_.seed, batch);
  reference_.resize(stepper_.objectives_.size());
  std::vector<precision::Trial> trials;
  Tensors earlier;
  for (std::size_t i = 0; i < stepper_.objectives_.size(); ++i) {
    stepper_.freeze_all_but(stepper_.objectives_[i]);
    clock.start();
    stepper_.seed_loss(stepper_.objectives_[i], batch);
    std::optional<Loss> loss = stepper_.forward(stepper_.objectives_[i], batch, earlier, true, autocast);
    if (!loss) continue;
    in_backward_pass(stepper_.objectives_[i].spec().name, batch,
                     [&] { trials.push_back(try_objective(i, *loss, scale, role, clock)); });
    for (const auto& [name, tensor] : loss->outputs) earlier[name] = tensor.detach();
  }
  return trials;
}

precision::Trial StepTrials::try_objective(std::size_t i, const Loss& loss, double scale, Role role, WorkClock& clock) {
  const ObjectiveStep& objective = stepper_.objectives_[i];
  const Doing doing(Doing::Level::phase, "backward");
  at::Tensor total;
  for (const LossTerm& term : loss.terms) {
    at::Tensor mean = term.sum / term.nominal_count * (term.weight_now.defined() ? scale : scale * term.weight);
    if (term.weight_now.defined()) mean = mean * term.weight_now;
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
  if (stepper_.objectives_.size() > 1) trial.objective = objective.spec().name;
  {
    const device::ExpectedReads of_the_trial;  // these reads belong to the trial, not to a step
    trial.loss = shown(loss).item<double>();
    trial.gradient_norm = norms.empty() ? 0.0 : at::stack(norms).norm().item<double>();
  }
  const WorkClock::Time time = clock.stop();  // stopped before the comparison, which is not part of a step
  trial.step_ms = time.wall;
  trial.busy_ms = time.busy;
  if (role == StepTrials::Role::reference) {
    reference_[i] = std::move(gradients);
    return trial;
  }
  const GradientDifference difference = compare_gradients(objective.optimizer().groups(), gradients, reference_[i]);
  trial.gradient_cosine = difference.cosine;
  trial.worst_gradient = difference.worst;
  trial.worst_parameter = difference.parameter;
  return trial;
}

// Makes a step in training mode and undoes all that `run` changed.
template <class Run>
auto StepTrials::without_trace(const Run& run) {
  const bool training = stepper_.model().is_training();
  stepper_.model().train();
  stepper_.begin_step(stepper_.step_);
  stepper_.blocks_.begin_trial();
  return finally(run, [&] {
    stepper_.blocks_.end_trial();
    stepper_.model().train(training);
    stepper_.drop_step(nullptr);
  });
}

StepTrials::RehearsedStep StepTrials::rehearse(const Batch& batch) {
  return without_trace([&] {
    StepTrials::RehearsedStep rehearsed;
    StrayLeaves strays(stepper_.model());
    rehearsed.result = stepper_.accumulate(batch, {.only = true},
                                           [&](const std::string& objective, const Loss& loss) { strays.look(objective, loss); });
    strays.refuse(batch);
    stepper_.blocks_.check(stepper_.blocks_.recompute());
    std::set<const void*> moved;
    for (const ObjectiveStep& objective : stepper_.objectives_) {
      for (const at::Tensor& parameter : objective.parameters()) moved.insert(parameter.unsafeGetTensorImpl());
    }
    for (const auto& parameter : stepper_.model().named_parameters()) {
      if (parameter.value().requires_grad() && !moved.contains(parameter.value().unsafeGetTensorImpl()))
        rehearsed.in_no_objective.push_back(parameter.key());
    }
    for (const ObjectiveStep& objective : stepper_.objectives_) {
      // With several ranks the gradients are not in the parameters.
      if (!objective.takes_part() || stepper_.sums_gradients()) continue;
      for (const auto& group : objective.optimizer().groups()) {
        for (const auto& parameter : group.parameters) {
          if (!parameter.value.grad().defined()) rehearsed.without_gradient.push_back(parameter.name);
        }
      }
    }
    return rehearsed;
  });
}

memory::StepProfile StepTrials::profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients) {
  ModelBlocks& blocks = stepper_.blocks_;
  const memory::Recompute kept = blocks.recompute();
  return without_trace([&] {
    blocks.set_recompute(recompute);
    return finally(
        [&] {
          // kept during the second micro-step, because a step keeps the results of its micro-steps
          std::optional<StepResult> before;
          if (with_gradients) before = stepper_.accumulate(batch);
          memory::Profiler profiler(stepper_.device());
          blocks.watch(&profiler);
          // `only`: true if this is the step's only micro-batch; the terms of a loss then share one backward pass.
          (void)stepper_.accumulate(batch, {.only = !with_gradients});
          return profiler.finish();
        },
        [&] {
          blocks.watch(nullptr);
          blocks.set_recompute(kept);
        });
  });
}

}  // namespace millrace
