#include "millrace/train/stepper.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/offload.h"
#include "millrace/train/generator_state.h"

namespace millrace {
namespace {

using telemetry::Phase;
using telemetry::Span;

std::vector<optim::ParameterGroup> groups_of(const Objective& objective, torch::nn::Module& model) {
  if (!objective.parameters.empty()) return objective.parameters;
  optim::ParameterGroup all;
  for (const auto& item : model.named_parameters()) all.parameters.push_back({item.key(), item.value()});
  return {std::move(all)};
}

std::vector<at::Tensor> trained(const std::vector<optim::ParameterGroup>& groups) {
  std::vector<at::Tensor> all;
  for (const auto& group : groups) {
    for (const auto& parameter : group.parameters) {
      if (parameter.value.requires_grad()) all.push_back(parameter.value);
    }
  }
  return all;
}

void add_to(std::optional<Loss>& total, const Loss& loss) {
  if (!total) {
    total = Loss{.sum = loss.sum, .count = loss.count, .report = loss.report, .outputs = {}};
    return;
  }
  total->sum = total->sum + loss.sum;
  total->count = total->count + loss.count;
  if (loss.report)
    total->report = {total->report->sum + loss.report->sum, total->report->count + loss.report->count, loss.report->logarithm};
}

Loss detached(Loss loss) {
  loss.sum = loss.sum.detach();
  loss.count = loss.count.detach();
  if (loss.report) loss.report = {loss.report->sum.detach(), loss.report->count.detach(), loss.report->logarithm};
  for (auto& [name, tensor] : loss.outputs) tensor = tensor.detach();
  return loss;
}

// Of two gradients of the same parameters; 1 where there is nothing to compare.
double cosine(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double product = 0;
  double squares_a = 0;
  double squares_b = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!a[i].defined() || !b[i].defined()) continue;
    const auto sum = [](const at::Tensor& x, const at::Tensor& y) {
      return (x.detach() * y.detach()).sum(at::kDouble).item<double>();
    };
    product += sum(a[i], b[i]);
    squares_a += sum(a[i], a[i]);
    squares_b += sum(b[i], b[i]);
  }
  return squares_a > 0 && squares_b > 0 ? product / std::sqrt(squares_a * squares_b) : 1.0;
}

}  // namespace

at::Tensor shown(const Loss& loss) {
  const at::Tensor& sum = loss.report ? loss.report->sum : loss.sum;
  const at::Tensor& count = loss.report ? loss.report->count : loss.count;
  const at::Tensor mean = sum.detach().to(at::kDouble) / count.detach().to(at::kDouble);
  return loss.report && loss.report->logarithm ? mean.log() : mean;
}

Stepper::Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, StepperOptions options)
    : recipe_(recipe),
      switches_(switches),
      timeline_(timeline),
      options_(options),
      buffers_(options.trains ? recipe.model().buffers() : std::vector<at::Tensor>()) {
  torch::nn::Module& model = recipe.model();
  for (Objective& objective : recipe.objectives()) {
    objective.optim = optim::settled(objective.optim, options.total_steps, options.global_batch);
    Lane lane;
    auto groups = groups_of(objective, model);
    lane.parameters = trained(groups);
    bool fused = switches.on("fused_optimizer");
    if (!objective.optim.fused.is_auto()) fused = fused && objective.optim.fused.value();
    if (options.trains && objective.optim.ema_decay > 0)
      lane.average = std::make_unique<optim::Average>(groups, objective.optim.ema_decay);
    lane.optimizer = std::make_unique<optim::Optimizer>(std::move(groups), objective.optim, fused);
    lane.norm = at::zeros({}, at::TensorOptions(at::kFloat).device(options.device));
    if (objective.optim.schedule == optim::ScheduleKind::plateau) lane.plateau.emplace(objective.optim);
    lane.objective = std::move(objective);
    lanes_.push_back(std::move(lane));
  }
  MR_CHECK(!lanes_.empty(), "a recipe without objectives");
  const auto f64 = at::TensorOptions(at::kDouble).device(options_.device);
  gradient_norm_ = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
  skipped_ = at::zeros({}, f64);
  skipped_in_a_row_ = at::zeros({}, f64);
  spiked_ = at::zeros({}, f64);
  const double zscore = lanes_.front().objective.optim.spike_zscore;
  if (zscore > 0) spikes_.emplace(options_.device, 2 * static_cast<std::int64_t>(lanes_.size()), zscore);
  set_autocast(options_.autocast);
}

Stepper::~Stepper() = default;

void Stepper::begin_step(std::int64_t step) {
  step_ = step;
  buffers_.begin();
  if (options_.recovers) edge_generator_ = generator_state();
  forget_micro_steps();
  for (Lane& lane : lanes_) {
    lane.learning_rate = optim::learning_rate_at(lane.objective.optim, step, options_.total_steps);
    if (lane.plateau) lane.learning_rate *= lane.plateau->factor();
    lane.optimizer->set_learning_rate(lane.learning_rate);
  }
}

void Stepper::forget_micro_steps() {
  micro_step_ = 0;
  for (Lane& lane : lanes_) {
    lane.nominal = 0;
    lane.count = at::Tensor();
    lane.seen.reset();
  }
}

Loss Stepper::forward(Lane& lane, const Batch& batch, const Tensors& earlier, bool training,
                      std::optional<at::ScalarType> autocast) {
  const device::Autocast guard(options_.device.type(), autocast);
  const StepContext context{.step = step_, .training = training, .earlier = &earlier};
  std::optional<memory::OffloadScope> offload;
  if (training && options_.offload_bytes > 0) {
    offload.emplace(options_.device, options_.offload_bytes, recipe_.model().parameters());
  }
  std::optional<memory::BlockScope> blocks;
  if (training) blocks.emplace(options_.recompute, options_.device, watcher_, blocks_known_ ? nullptr : &blocks_);
  Loss loss = lane.objective.loss(batch, context);
  MR_CHECK(loss.sum.defined() && loss.sum.dim() == 0, "objective " + lane.objective.name + " must return a scalar sum");
  MR_CHECK(loss.count.defined() && loss.nominal_count > 0,
           "objective " + lane.objective.name + " must return a count and a positive nominal_count");
  return loss;
}

StepResult Stepper::accumulate(const Batch& batch) {
  const RandomScope random(options_.seed, static_cast<std::uint64_t>(step_), micro_step_++);
  StepResult result;
  Tensors earlier;
  for (Lane& lane : lanes_) {
    freeze_all_but(lane);
    Loss loss;
    {
      const Span span(timeline_, Phase::forward);
      loss = forward(lane, batch, earlier, true, options_.autocast);
    }
    {
      const Span span(timeline_, Phase::backward);
      if (lane.nominal == 0) lane.nominal = loss.nominal_count;
      // One constant per step: in exact arithmetic it cancels, and half precision never sees the undivided sum.
      const at::Tensor mean = loss.sum / lane.nominal;
      (lane.scale ? mean * lane.scale->scale() : mean).backward();
    }
    loss = detached(std::move(loss));
    // Of a loss that is not finite the difference is NaN, and with it the step bad, even where its gradient is fine.
    const at::Tensor count = loss.count.to(at::kFloat) + (loss.sum - loss.sum).to(at::kFloat);
    lane.count = lane.count.defined() ? lane.count + count : count;
    if (spikes_) add_to(lane.seen, loss);
    for (const auto& [name, tensor] : loss.outputs) earlier[name] = tensor;
    result.losses.push_back(std::move(loss));
  }
  unfreeze();
  if (!std::exchange(blocks_known_, true) && !trying_) check_blocks(options_.recompute);
  return result;
}

// What each objective's gradients are like; true when the host, asked by device_skip off, says that the step does not count.
bool Stepper::judge_lanes() {
  const bool asks_host = !switches_.on("device_skip");
  std::vector<bool> bad;
  for (const Lane& lane : lanes_) bad.push_back(asks_host && host_says_skip(lane));
  const bool skips = std::find(bad.begin(), bad.end(), true) != bad.end();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (skips) {
      lane.bad = at::full({}, bad[i] ? 1.0 : 0.0, lane.norm.options());
      continue;
    }
    const at::Tensor nominal = at::full({}, lane.nominal, lane.norm.options());
    const optim::StepReport report = lane.optimizer->prepare(lane.scale ? nominal / lane.scale->scale() : nominal, lane.count);
    lane.bad = report.found_inf;
    lane.norm = report.gradient_norm;
  }
  if (!skips) gradient_norm_ = lanes_.front().norm;
  return skips;
}

void Stepper::update() {
  const Span span(timeline_, Phase::optimizer);
  const at::NoGradGuard no_grad;
  const bool host_skips = judge_lanes();
  at::Tensor bad = lanes_.front().bad;
  for (std::size_t i = 1; i < lanes_.size(); ++i) bad = at::maximum(bad, lanes_[i].bad);
  at::Tensor skip = bad;
  if (spikes_) {
    const at::Tensor spike = spikes_->judge(watched(), bad);
    spiked_ += spike;
    skip = at::maximum(bad, spike);
  }
  for (Lane& lane : lanes_) {
    if (!host_skips) lane.optimizer->apply(skip);
    lane.optimizer->zero_grad();
    if (lane.scale) lane.scale->update(lane.bad);
    if (lane.average) lane.average->update(skip);
  }
  buffers_.settle(skip);
  tally(bad);
}

void Stepper::tally(const at::Tensor& bad) {
  skipped_ += bad;
  skipped_in_a_row_ = (skipped_in_a_row_ + 1) * bad;
  if (overflow_) overflow_->update(bad, skipped_in_a_row_, smallest_scale());
}

// Of each objective the gradient's norm and the loss as it is shown.
at::Tensor Stepper::watched() const {
  std::vector<at::Tensor> values;
  for (const Lane& lane : lanes_) {
    values.push_back(lane.norm.to(at::kDouble));
    values.push_back(shown(*lane.seen));
  }
  return at::stack(values);
}

at::Tensor Stepper::smallest_scale() const {
  at::Tensor smallest;
  for (const Lane& lane : lanes_) {
    if (lane.scale) smallest = smallest.defined() ? at::minimum(smallest, lane.scale->scale()) : lane.scale->scale();
  }
  return smallest;
}

void Stepper::set_autocast(std::optional<at::ScalarType> autocast) {
  options_.autocast = autocast;
  overflow_.reset();
  if (autocast && options_.trains) overflow_.emplace(options_.device, *autocast);
  for (Lane& lane : lanes_) {
    lane.scale = autocast == at::kHalf && options_.trains ? std::make_unique<precision::LossScale>(options_.device) : nullptr;
  }
}

std::optional<std::string> Stepper::overflow() const {
  return overflow_ && overflow_->given_up() ? std::optional(overflow_->reason()) : std::nullopt;
}

std::optional<double> Stepper::loss_scale() const {
  const at::Tensor smallest = smallest_scale();
  return smallest.defined() ? std::optional(smallest.item<double>()) : std::nullopt;
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
  for (const Lane& lane : lanes_) {
    if (lane.average) all.insert(lane.average->weights().begin(), lane.average->weights().end());
  }
  return all;
}

std::vector<optim::AverageInUse> Stepper::use_average() const {
  std::vector<optim::AverageInUse> lent;
  for (const Lane& lane : lanes_) {
    if (lane.average) lent.emplace_back(*lane.average);
  }
  return lent;
}

bool Stepper::host_says_skip(const Lane& lane) const {
  for (const at::Tensor& parameter : lane.parameters) {
    if (parameter.grad().defined() && !at::isfinite(parameter.grad().norm()).item<bool>()) return true;
  }
  return !(lane.count.item<double>() > 0);
}

StepResult Stepper::evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  StepResult result;
  Tensors earlier;
  for (Lane& lane : lanes_) {
    Loss loss = detached(forward(lane, batch, earlier, false, options_.autocast));
    for (const auto& [name, tensor] : loss.outputs) earlier[name] = tensor;
    result.losses.push_back(std::move(loss));
  }
  return result;
}

precision::Trial Stepper::try_precision(const Batch& batch, std::optional<at::ScalarType> autocast) {
  if (autocast != at::kHalf) return try_scaled(batch, autocast, 1.0);
  precision::Trial trial;
  for (const double scale : {65536.0, 4096.0, 256.0}) {  // where a run's own scale would soon settle
    trial = try_scaled(batch, autocast, scale);
    if (std::isfinite(trial.gradient_norm)) break;
  }
  return trial;
}

precision::Trial Stepper::try_scaled(const Batch& batch, std::optional<at::ScalarType> autocast, double scale) {
  struct PutBack {
    Stepper& stepper;
    ~PutBack() {
      stepper.unfreeze();
      for (Lane& lane : stepper.lanes_) lane.optimizer->zero_grad();
      stepper.buffers_.settle(at::ones({}, stepper.gradient_norm_.options()));
    }
  };
  buffers_.begin();
  const PutBack put_back{*this};
  const auto begin = std::chrono::steady_clock::now();
  const RandomScope random(options_.seed, 0, 0);
  Lane& lane = lanes_.front();
  freeze_all_but(lane);
  const Loss loss = forward(lane, batch, {}, true, autocast);
  (loss.sum / loss.nominal_count * scale).backward();
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : lane.parameters) {
    gradients.push_back(parameter.grad());
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm().to(at::kFloat));
  }
  precision::Trial trial;
  trial.loss = shown(loss).item<double>();
  trial.gradient_norm = norms.empty() ? 0.0 : at::stack(norms).norm().item<double>() / scale;
  trial.step_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (autocast) {
    trial.gradient_cosine = cosine(gradients, trial_reference_);
  } else {
    trial_reference_ = std::move(gradients);
  }
  return trial;
}

void Stepper::freeze_all_but(const Lane& lane) {
  if (lanes_.size() == 1) return;
  for (Lane& other : lanes_) {
    for (at::Tensor& parameter : other.parameters) parameter.set_requires_grad(false);
  }
  for (const at::Tensor& parameter : lane.parameters) parameter.set_requires_grad(true);
}

void Stepper::unfreeze() {
  if (lanes_.size() == 1) return;
  for (Lane& lane : lanes_) {
    for (at::Tensor& parameter : lane.parameters) parameter.set_requires_grad(true);
  }
}

void Stepper::observe_validation(double loss) {
  for (Lane& lane : lanes_) {
    if (lane.plateau) lane.plateau->observe(loss);
  }
}

}  // namespace millrace
