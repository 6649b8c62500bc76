// What of a stepper is saved, and how it is put back.
#include <torch/nn/module.h>

#include <array>
#include <string_view>

#include "millrace/base/error.h"
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
  for (Lane& lane : lanes_) {
    auto [own, one] = split(state, lanes_.size() == 1 ? "" : lane.objective.name + "/");
    const auto objectives = state.json.find("objectives");
    if (objectives == state.json.end() || !objectives->contains(lane.objective.name)) {
      throw SnapshotError({"the snapshot has no optimiser state of objective \"" + lane.objective.name + "\"",
                           "part \"optimizer\"", "resume with the recipe that wrote it, or start over with --fresh"});
    }
    const Json& json = (*objectives)[lane.objective.name];
    one.json = json.value("optimizer", Json::object());
    lane.optimizer->load_state(one);
    if (lane.plateau && json.contains("plateau")) lane.plateau->load_state(json["plateau"]);
    // Another run's snapshot may know neither of scales nor of averages: they begin here then.
    if (lane.scale && own.tensors.contains("loss_scale")) lane.scale->load_state(own);
    if (!lane.average) continue;
    if (average.empty()) {
      lane.average = std::make_unique<optim::Average>(lane.optimizer->groups(), lane.objective.optim.ema_decay);
    } else {
      lane.average->load(average, own.tensors["ema_updates"]);
    }
  }
  const at::NoGradGuard no_grad;
  const auto copy = [&state](const char* name, at::Tensor& target) {
    if (const auto it = state.tensors.find(name); it != state.tensors.end()) target.copy_(it->second);
  };
  copy("skipped", skipped_);
  copy("skipped_in_a_row", skipped_in_a_row_);
  copy("spikes", spiked_);
  if (overflow_) overflow_->load_state(state);
  if (spikes_ && state.tensors.contains("spike_window")) spikes_->load_state(state);
}

}  // namespace millrace
