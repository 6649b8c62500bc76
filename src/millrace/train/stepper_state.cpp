// What of a stepper is saved, and how it is put back.
#include <torch/nn/module.h>

#include <array>
#include <string_view>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/core/saved_json.h"
#include "millrace/train/stepper.h"

namespace millrace {
namespace {

// Beside the optimisers' tensors, whose names end in a dot and a word.
constexpr std::array<std::string_view, 11> kOwn = {"skipped",    "skipped_in_a_row", "spikes",     "spike_window",
                                                   "spike_seen", "overflow_rate",    "gave_up",    "overflow_scale",
                                                   "loss_scale", "growth_tracker",   "ema_updates"};

bool is_own(std::string_view name) { return std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end(); }

// Saved names, without the prefix: the stepper's own, and the optimiser's.
std::pair<State, State> split(const State& state, const std::string& prefix) {
  std::pair<State, State> parts;
  for (const auto& [name, tensor] : state.tensors) {
    if (!name.starts_with(prefix)) continue;
    const std::string rest = name.substr(prefix.size());
    (is_own(rest) ? parts.first : parts.second).tensors[rest] = tensor;
  }
  return parts;
}

// A counter that is there has the shape of its own.
void check_saved(const State& state, const std::string& name, const at::Tensor& own) {
  const auto it = state.tensors.find(name);
  if (it == state.tensors.end() || it->second.sizes() == own.sizes()) return;
  refuse_part("optimizer", "tensor \"" + name + "\" is " + to_text(Shape(it->second.sizes().begin(), it->second.sizes().end())) +
                               ", not " + to_text(Shape(own.sizes().begin(), own.sizes().end())));
}

void copy_saved(const State& state, const std::string& name, at::Tensor& own) {
  check_saved(state, name, own);
  const at::NoGradGuard no_grad;
  if (const auto it = state.tensors.find(name); it != state.tensors.end()) own.copy_(it->second);
}

}  // namespace

State Stepper::state() const {
  State all;
  const auto add = [&all](const std::string& prefix, const State& part) {
    for (const auto& [name, tensor] : part.tensors) all.tensors[prefix + name] = tensor;
  };
  for (const Lane& lane : lanes_) {
    const State one = lane.optimizer->state();
    const std::string prefix = lanes_.size() == 1 ? "" : lane.objective.name + "/";
    add(prefix, one);
    if (lane.scale) add(prefix, lane.scale->state());
    if (lane.average) all.tensors[prefix + "ema_updates"] = lane.average->updates();
    Json& json = all.json["objectives"][lane.objective.name];
    json["optimizer"] = one.json;
    if (lane.plateau) json["plateau"] = lane.plateau->state();
  }
  all.tensors["skipped"] = skipped_;
  all.tensors["skipped_in_a_row"] = skipped_in_a_row_;
  if (overflow_) add("", overflow_->state());
  if (spikes_) {
    add("", spikes_->state());
    all.tensors["spikes"] = spiked_;
  }
  return all;
}

void Stepper::load_state(const State& state, const Tensors& average) {
  const auto objectives = SavedJson(state.json, "optimizer")["objectives"];
  for (Lane& lane : lanes_) {
    auto [own, one] = split(state, lanes_.size() == 1 ? "" : lane.objective.name + "/");
    const auto objective = objectives.find(lane.objective.name);
    if (!objective) {
      throw SnapshotError({"the snapshot has no optimiser state of objective \"" + lane.objective.name + "\"",
                           "part \"optimizer\"", "resume with the recipe that wrote it, or start over with --fresh"});
    }
    one.json = (*objective)["optimizer"].json();
    lane.optimizer->load_state(one);
    const auto plateau = objective->find("plateau");
    if (lane.plateau && plateau) lane.plateau->load_state(*plateau);
    // Another run's snapshot may know neither of scales nor of averages: they begin here then.
    if (lane.scale && own.tensors.contains("loss_scale")) lane.scale->load_state(own);
    if (!lane.average) continue;
    if (average.empty()) {
      lane.average = std::make_unique<optim::Average>(lane.optimizer->groups(), lane.objective.optim.ema_decay);
    } else {
      lane.average->load(average, own.tensors["ema_updates"]);
    }
  }
  copy_saved(state, "skipped", skipped_);
  copy_saved(state, "skipped_in_a_row", skipped_in_a_row_);
  copy_saved(state, "spikes", spiked_);
  if (overflow_) {
    for (auto& [name, own] : overflow_->state().tensors) check_saved(state, name, own);
    overflow_->load_state(state);
  }
  if (spikes_ && state.tensors.contains("spike_window")) spikes_->load_state(state);
}

}  // namespace millrace
