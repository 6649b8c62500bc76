#include "millrace/train/stepper.h"

#include <torch/nn/module.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/offload.h"

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

Loss detached(Loss loss) {
  loss.sum = loss.sum.detach();
  loss.count = loss.count.detach();
  if (loss.report) loss.report = {loss.report->sum.detach(), loss.report->count.detach(), loss.report->logarithm};
  for (auto& [name, tensor] : loss.outputs) tensor = tensor.detach();
  return loss;
}

}  // namespace

at::Tensor shown(const Loss& loss) {
  const at::Tensor& sum = loss.report ? loss.report->sum : loss.sum;
  const at::Tensor& count = loss.report ? loss.report->count : loss.count;
  const at::Tensor mean = sum.detach().to(at::kDouble) / count.detach().to(at::kDouble);
  return loss.report && loss.report->logarithm ? mean.log() : mean;
}

Stepper::Stepper(Recipe& recipe, const Switches& switches, telemetry::Timeline& timeline, StepperOptions options)
    : recipe_(recipe), switches_(switches), timeline_(timeline), options_(options) {
  torch::nn::Module& model = recipe.model();
  for (Objective& objective : recipe.objectives()) {
    Lane lane;
    auto groups = groups_of(objective, model);
    lane.parameters = trained(groups);
    bool fused = switches.on("fused_optimizer");
    if (!objective.optim.fused.is_auto()) fused = fused && objective.optim.fused.value();
    lane.optimizer = std::make_unique<optim::Optimizer>(std::move(groups), objective.optim, fused);
    if (objective.optim.schedule == optim::ScheduleKind::plateau) lane.plateau.emplace(objective.optim);
    lane.objective = std::move(objective);
    lanes_.push_back(std::move(lane));
  }
  MR_CHECK(!lanes_.empty(), "a recipe without objectives");
  const auto f64 = at::TensorOptions(at::kDouble).device(options_.device);
  gradient_norm_ = at::zeros({}, at::TensorOptions(at::kFloat).device(options_.device));
  skipped_ = at::zeros({}, f64);
  skipped_in_a_row_ = at::zeros({}, f64);
}

Stepper::~Stepper() = default;

void Stepper::begin_step(std::int64_t step) {
  step_ = step;
  if (options_.recovers) note_edge();
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
      (loss.sum / lane.nominal).backward();
    }
    loss = detached(std::move(loss));
    const at::Tensor count = loss.count.to(at::kFloat);
    lane.count = lane.count.defined() ? lane.count + count : count;
    for (const auto& [name, tensor] : loss.outputs) earlier[name] = tensor;
    result.losses.push_back(std::move(loss));
  }
  unfreeze();
  if (!std::exchange(blocks_known_, true) && !trying_) check_blocks(options_.recompute);
  return result;
}

void Stepper::update() {
  const Span span(timeline_, Phase::optimizer);
  const at::NoGradGuard no_grad;
  at::Tensor skipped;
  for (Lane& lane : lanes_) {
    if (!switches_.on("device_skip") && host_says_skip(lane)) {
      skipped = at::ones({}, gradient_norm_.options());
    } else {
      const at::Tensor nominal = at::full({}, lane.nominal, gradient_norm_.options());
      const optim::StepReport report = lane.optimizer->step(nominal, lane.count);
      skipped = skipped.defined() ? at::maximum(skipped, report.found_inf) : report.found_inf;
      if (&lane == &lanes_.front()) gradient_norm_ = report.gradient_norm;
    }
    lane.optimizer->zero_grad();
  }
  skipped_ += skipped;
  skipped_in_a_row_ = (skipped_in_a_row_ + 1) * skipped;
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
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers;
  for (const at::Tensor& buffer : recipe_.model().buffers()) buffers.emplace_back(buffer, buffer.clone());
  const auto begin = std::chrono::steady_clock::now();
  precision::Trial trial;
  {
    const RandomScope random(options_.seed, 0, 0);
    Lane& lane = lanes_.front();
    freeze_all_but(lane);
    const Loss loss = forward(lane, batch, {}, true, autocast);
    (loss.sum / loss.nominal_count).backward();
    std::vector<at::Tensor> norms;
    for (const at::Tensor& parameter : lane.parameters) {
      if (parameter.grad().defined()) norms.push_back(parameter.grad().norm().to(at::kFloat));
    }
    trial.loss = shown(loss).item<double>();
    trial.gradient_norm = norms.empty() ? 0.0 : at::stack(norms).norm().item<double>();
    unfreeze();
  }
  trial.step_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (Lane& lane : lanes_) lane.optimizer->zero_grad();
  const at::NoGradGuard no_grad;
  for (auto& [buffer, saved] : buffers) buffer.copy_(saved);
  return trial;
}

void Stepper::freeze_all_but(const Lane& lane) {
  if (lanes_.size() == 1) return;
  for (Lane& other : lanes_) {
    for (at::Tensor& parameter : other.parameters) parameter.set_requires_grad(false);
  }
  for (at::Tensor parameter : lane.parameters) parameter.set_requires_grad(true);
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

State Stepper::state() const {
  State all;
  for (const Lane& lane : lanes_) {
    const State one = lane.optimizer->state();
    const std::string prefix = lanes_.size() == 1 ? "" : lane.objective.name + "/";
    for (const auto& [name, tensor] : one.tensors) all.tensors[prefix + name] = tensor;
    Json& json = all.json["objectives"][lane.objective.name];
    json["optimizer"] = one.json;
    if (lane.plateau) json["plateau"] = lane.plateau->state();
  }
  all.tensors["skipped"] = skipped_;
  all.tensors["skipped_in_a_row"] = skipped_in_a_row_;
  return all;
}

void Stepper::load_state(const State& state) {
  for (Lane& lane : lanes_) {
    const std::string prefix = lanes_.size() == 1 ? "" : lane.objective.name + "/";
    State one;
    for (const auto& [name, tensor] : state.tensors) {
      if (name.starts_with(prefix)) one.tensors[name.substr(prefix.size())] = tensor;
    }
    one.tensors.erase("skipped");
    one.tensors.erase("skipped_in_a_row");
    const auto objectives = state.json.find("objectives");
    if (objectives == state.json.end() || !objectives->contains(lane.objective.name)) {
      throw SnapshotError({"the snapshot has no optimiser state of objective \"" + lane.objective.name + "\"",
                           "part \"optimizer\"", "resume with the recipe that wrote it, or start over with --fresh"});
    }
    const Json& json = (*objectives)[lane.objective.name];
    one.json = json.value("optimizer", Json::object());
    lane.optimizer->load_state(one);
    if (lane.plateau && json.contains("plateau")) lane.plateau->load_state(json["plateau"]);
  }
  const at::NoGradGuard no_grad;
  if (const auto it = state.tensors.find("skipped"); it != state.tensors.end()) skipped_.copy_(it->second);
  if (const auto it = state.tensors.find("skipped_in_a_row"); it != state.tensors.end()) skipped_in_a_row_.copy_(it->second);
}

}  // namespace millrace
