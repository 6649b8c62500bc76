#include "millrace/train/step/stepper_state.h"

#include "millrace/base/error.h"
#include "millrace/core/saved_json.h"

namespace millrace {
namespace {

std::string prefix_of(const Stepper& stepper, const ObjectiveStep& objective) {
  return stepper.objectives().size() == 1 ? "" : objective.spec().name + "/";
}

}  // namespace

State state_of(const Stepper& stepper) {
  State all;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    State one = objective.state();
    for (const auto& [name, tensor] : one.tensors) all.tensors[prefix_of(stepper, objective) + name] = tensor;
    all.json["objectives"][objective.spec().name] = std::move(one.json);
  }
  for (const auto& [name, tensor] : stepper.skips().state().tensors) all.tensors[name] = tensor;
  return all;
}

void load_state(Stepper& stepper, const State& state, const Tensors& average) {
  const auto objectives = SavedJson(state.json, "optimizer")["objectives"];
  for (ObjectiveStep& objective : stepper.objectives()) {
    const auto saved = objectives.find(objective.spec().name);
    if (!saved) {
      throw SnapshotError({"the snapshot has no optimiser state of objective \"" + objective.spec().name + "\"",
                           "part \"optimizer\"", "resume with the recipe that wrote it, or start over with --fresh"});
    }
    const std::string prefix = prefix_of(stepper, objective);
    State one;
    for (const auto& [name, tensor] : state.tensors) {
      if (name.starts_with(prefix)) one.tensors[name.substr(prefix.size())] = tensor;
    }
    objective.load_state(one, *saved, average);
  }
  stepper.skips().load_state(state);
}

Tensors averaged_weights(const Stepper& stepper) {
  Tensors all;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    if (objective.average() != nullptr) all.insert(objective.average()->weights().begin(), objective.average()->weights().end());
  }
  return all;
}

std::vector<optim::AverageInUse> use_average(const Stepper& stepper) {
  std::vector<optim::AverageInUse> lent;
  for (const ObjectiveStep& objective : stepper.objectives()) {
    if (objective.average() != nullptr) lent.emplace_back(*objective.average());
  }
  return lent;
}

}  // namespace millrace
