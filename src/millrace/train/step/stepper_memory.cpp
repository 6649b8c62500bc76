// The stepper's side of memory: a step that can be taken back, and trials that watch what it holds.
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

void Stepper::abandon_step() {
  if (sums_gradients()) {
    for (ObjectiveStep& objective : objectives_) objective.call_back(agreement());
  }
  return_to_edge();
}

void Stepper::return_to_edge() {
  unfreeze();
  for (ObjectiveStep& objective : objectives_) objective.optimizer().zero_grad();
  buffers_.put_back();
  forget_micro_batches();
}

void Stepper::begin_trial() {
  recipe_.model().train();
  begin_step(step_);
  blocks_.trying = true;
}

void Stepper::end_trial(bool training) {
  blocks_.watcher = nullptr;
  blocks_.trying = false;
  recipe_.model().train(training);
  return_to_edge();
}

Stepper::Rehearsed Stepper::rehearse(const Batch& batch) {
  const bool training = recipe_.model().is_training();
  begin_trial();
  Rehearsed rehearsed;
  try {
    rehearsed.result = accumulate(batch, {.only = true});
    check_blocks(options_.recompute);
  } catch (...) {
    end_trial(training);
    throw;
  }
  for (const ObjectiveStep& objective : objectives_) {
    if (!objective.takes_part() || sums_gradients()) continue;  // among ranks gradients wait elsewhere
    for (const auto& group : objective.optimizer().groups()) {
      for (const auto& parameter : group.parameters) {
        if (!parameter.value.grad().defined()) rehearsed.without_gradient.push_back(parameter.name);
      }
    }
  }
  end_trial(training);
  return rehearsed;
}

memory::StepProfile Stepper::profile_memory(const Batch& batch, const memory::Recompute& recompute, bool with_gradients) {
  const bool training = recipe_.model().is_training();
  begin_trial();
  memory::Recompute kept = std::exchange(options_.recompute, recompute);
  std::optional<memory::Profiler> profiler;
  const auto end = [&] {
    options_.recompute = std::move(kept);
    end_trial(training);
  };
  try {
    std::optional<StepResult> before;  // a step keeps what its micro-steps gave
    if (with_gradients) before = accumulate(batch);
    profiler.emplace(options_.device);
    blocks_.watcher = &*profiler;
    (void)accumulate(batch, {.only = !with_gradients});  // terms of a loss share their backward pass in a step's only micro-batch
  } catch (...) {
    end();
    throw;
  }
  memory::StepProfile profile = profiler->finish();
  end();
  return profile;
}

bool Stepper::recompute_all() {
  const auto kept = [this](const std::string& block) { return !options_.recompute.takes(block); };
  if (std::ranges::none_of(blocks_.names, kept)) return false;
  options_.recompute = memory::Recompute({"all"});
  return true;
}

// A name that takes no block is a slip; found before the first update.
void Stepper::check_blocks(const memory::Recompute& recompute) const {
  const std::vector<std::string> lost = recompute.unmatched(blocks_.names);
  if (lost.empty()) return;
  std::string names;
  for (const std::string& block : blocks_.names) names += (names.empty() ? "" : ", ") + block;
  throw ConfigError(
      {"the model has no block " + quoted(lost.front()), "memory.recompute",
       blocks_.names.empty() ? "its recipe names no blocks: leave memory.recompute at auto or none" : "its blocks are " + names});
}

std::map<std::string, std::uint64_t> Stepper::state_bytes() const {
  std::map<std::string, std::uint64_t> bytes = {{"parameters", 0}, {"buffers", 0}, {"gradients", 0}, {"optimizer", 0}};
  for (const at::Tensor& parameter : recipe_.model().parameters()) {
    bytes["parameters"] += parameter.nbytes();
    if (parameter.grad().defined()) bytes["gradients"] += parameter.grad().nbytes();
  }
  for (const at::Tensor& buffer : recipe_.model().buffers()) bytes["buffers"] += buffer.nbytes();
  for (const ObjectiveStep& objective : objectives_) {
    for (const auto& [name, tensor] : objective.optimizer().state().tensors) bytes["optimizer"] += tensor.nbytes();
  }
  return bytes;
}

}  // namespace millrace
