#include "millrace/train/step/stepper.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block.h"
#include "millrace/memory/offload.h"
#include "millrace/nn/batch_norm.h"
#include "millrace/train/recipe/recipe_guard.h"
#include "millrace/train/step/draws.h"
#include "millrace/train/step/step_graph.h"
#include "millrace/train/step/step_launches.h"

namespace millrace {
namespace {

using telemetry::Phase;
using telemetry::Span;

std::vector<at::Tensor> roots_of(const Loss& loss) {
  std::vector<at::Tensor> roots;
  for (const LossTerm& term : loss.terms) roots.push_back(term.sum);
  return roots;
}

}  // namespace

void refuse_absence(const Batch& batch) {
  throw RecipeError({"no objective has a loss in the first step: each loss function returned nullopt",
                     "Objective::loss, " + to_text(batch.origin()) + "\nfields: " + to_text(batch),
                     "return a Loss from at least one loss function"});
}

Stepper::Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, const Stepper::Options& options)
    : recipe_(recipe),
      switches_(switches),
      timeline_(timeline),
      options_(options),
      skips_(options.device),
      blocks_(options.device, options.recompute),
      buffers_(options.trains ? recipe.model().buffers() : std::vector<at::Tensor>()) {
  memory::take_over_backward_passes();
  const ObjectiveStep::Options step{.device = options.device,
                                    .fused = switches.on("fused_optimizer"),
                                    .trains = options.trains,
                                    .total_steps = options.total_steps,
                                    .steps_per_epoch = options.steps_per_epoch,
                                    .global_batch = options.global_batch,
                                    .gradients = options.gradients,
                                    .shares = options.shards_optimizer && options.trains ? options.agreement : nullptr};
  std::vector<Objective> objectives = recipe.objectives();
  if (objectives.empty()) throw RecipeError({"the recipe has no objective", "objectives()", "return at least one objective"});
  for (Objective& objective : objectives) objectives_.emplace_back(std::move(objective), recipe.model(), step);
  if (sums_gradients()) nn::share_batch_norms(recipe.model(), options.agreement);
  set_autocast(options_.autocast);
}

Stepper::~Stepper() = default;

Agreement& Stepper::agreement() const { return options_.agreement == nullptr ? Agreement::of_one() : *options_.agreement; }

void Stepper::begin_step(std::int64_t step) {
  step_ = step;
  buffers_.begin();
  for (ObjectiveStep& objective : objectives_) objective.begin_step(step);
  if (graph_) graph_->begin(step);
}

std::optional<Loss> Stepper::forward(ObjectiveStep& objective, const Batch& batch, const Tensors& earlier, bool training,
                                     std::optional<at::ScalarType> autocast, StepLaunches* launches) {
  const Doing doing(Doing::Level::phase, "forward");
  const device::Autocast guard(options_.device.type(), autocast);
  HostReads* const reads = launches == nullptr ? nullptr : launches->reads();
  const StepContext context{.step = {step_, reads == nullptr ? nullptr : &reads->step},
                            .epoch = {batch.epoch(), reads == nullptr ? nullptr : &reads->epoch},
                            .total_steps = options_.total_steps,
                            .training = training,
                            .earlier = &earlier,
                            .numbers = launches == nullptr ? nullptr : launches->numbers()};
  std::optional<memory::OffloadScope> offload;
  if (training && options_.offload_bytes > 0) {
    offload.emplace(options_.device, options_.offload_bytes, recipe_.model().parameters());
  }
  std::optional<memory::BlockScope> blocks;
  if (training) blocks_.enter(blocks);
  return objective.spec().loss(batch, context);
}

void Stepper::seed_loss(const ObjectiveStep& objective, const Batch& batch) const {
  seed_draws(options_.device, options_.seed, Draws::loss, batch, static_cast<std::uint64_t>(&objective - objectives_.data()));
}

StepResult Stepper::accumulate(const Batch& batch, MicroPosition in_step, const LossVisitor& visit) {
  if (graph_ && !visit) {
    if (std::optional<StepResult> done = graph_->passes(batch, in_step)) return *std::move(done);
  }
  StepLaunches launches(timeline_);
  return passes(batch, in_step, visit, launches);
}

StepResult Stepper::passes(const Batch& batch, MicroPosition in_step, const LossVisitor& visit, StepLaunches& launches) {
  const RandomScope random(
      {.seed = options_.seed, .epoch = batch.epoch(), .rows = rows_of(batch), .recorder = launches.recorder()});
  epoch_ = batch.epoch();
  StepResult result;
  Tensors earlier;
  for (ObjectiveStep& objective : objectives_) {
    freeze_all_but(objective);
    const Doing subject(Doing::Level::subject, objective.spec().name.c_str());
    std::optional<Loss> loss;
    launches.seed(batch, [this, &objective](const Batch& now) { seed_loss(objective, now); });
    launches.run(Phase::forward, [&] {
      const memory::ForwardWatch watch(blocks_.clock_of(step_));
      loss = forward(objective, batch, earlier, true, options_.autocast, &launches);
    });
    if (loss && visit) visit(objective.spec().name, *loss);
    if (loss) {
      launches.run(Phase::backward, [&] {
        const memory::BackwardWatch watch(blocks_.clock_of(step_), roots_of(*loss));
        in_backward_pass(objective.spec().name, batch, [&] {
          loss = objective.add(std::move(*loss), {.only = in_step.only && !sums_gradients(), .last = in_step.last});
        });
      });
    }
    result.losses.push_back(loss ? std::move(*loss) : Loss{});
    for (const auto& [name, tensor] : result.losses.back().outputs) earlier[name] = tensor;
  }
  unfreeze();
  blocks_.end_pass();
  return result;
}

void Stepper::abandon_step() {
  if (graph_) buffers_.distrust_counters();
  drop_step(sums_gradients() ? &agreement() : nullptr);
  if (graph_) graph_->forget();
}

void Stepper::drop_step(Agreement* ranks) {
  unfreeze();
  for (ObjectiveStep& objective : objectives_) objective.drop_step(ranks);
  buffers_.put_back();
}

// Judges each objective's gradients. Returns true if the host decided that the step does not count; the host decides only with
// device_skip off.
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
  if (graph_) return graph_->update();
  StepLaunches launches(timeline_);
  update_by(launches);
}

void Stepper::update_by(StepLaunches& launches) {
  launches.run(Phase::optimizer, [&] { update_here(launches.reads()); });
}

void Stepper::update_here(HostReads* reads) {
  const at::NoGradGuard no_grad;
  if (sums_gradients()) {
    const Span reduction(timeline_, Phase::reduction);
    for (ObjectiveStep& objective : objectives_) objective.sum_over(agreement());
  }
  const bool host_skips = judge_objectives();
  at::Tensor bad = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
  for (const ObjectiveStep& objective : objectives_) {
    if (objective.takes_part()) bad = at::maximum(bad, objective.readings().bad);
  }
  at::Tensor skip = bad;
  for (ObjectiveStep& objective : objectives_) {
    if (!objective.takes_part()) continue;
    if (const auto spike = objective.spike(bad)) skip = at::maximum(skip, *spike);
  }
  const StepContext context{.step = {step_, reads == nullptr ? nullptr : &reads->step},
                            .epoch = {epoch_, reads == nullptr ? nullptr : &reads->epoch},
                            .total_steps = options_.total_steps};
  for (ObjectiveStep& objective : objectives_) objective.finish(skip, !host_skips, context);
  buffers_.settle(skip);
  skips_.add(bad, smallest_scale());
}

at::Tensor Stepper::smallest_scale() const {
  at::Tensor smallest;
  for (const ObjectiveStep& objective : objectives_) {
    const at::Tensor scale = objective.readings().loss_scale;
    if (scale.defined()) smallest = smallest.defined() ? at::minimum(smallest, scale) : scale;
  }
  return smallest;
}

void Stepper::set_autocast(std::optional<at::ScalarType> autocast) {
  options_.autocast = autocast;
  skips_.use_rule_of(options_.trains ? autocast : std::nullopt);
  for (ObjectiveStep& objective : objectives_) objective.use_scale(autocast == at::kHalf);
  if (graph_) graph_->forget();
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

StepResult Stepper::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  StepResult result;
  Tensors earlier;
  for (ObjectiveStep& objective : objectives_) {
    seed_loss(objective, batch);
    std::optional<Loss> loss = forward(objective, batch, earlier, false, options_.autocast);
    result.losses.push_back(loss ? detached(std::move(*loss)) : Loss{});
    for (const auto& [name, tensor] : result.losses.back().outputs) earlier[name] = tensor;
  }
  return result;
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

}  // namespace millrace
