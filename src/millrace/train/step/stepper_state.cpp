// What of a stepper is saved, and how it is put back.
#include <torch/nn/module.h>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/core/saved_json.h"
#include "millrace/train/step/stepper.h"

namespace millrace {
namespace {

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

std::string Stepper::prefix_of(const ObjectiveStep& objective) const {
  return objectives_.size() == 1 ? "" : objective.spec().name + "/";
}

State Stepper::state() const {
  State all;
  for (const ObjectiveStep& objective : objectives_) {
    State one = objective.state();
    for (const auto& [name, tensor] : one.tensors) all.tensors[prefix_of(objective) + name] = tensor;
    all.json["objectives"][objective.spec().name] = std::move(one.json);
  }
  all.tensors["skipped"] = skipped_;
  all.tensors["skipped_in_a_row"] = skipped_in_a_row_;
  if (overflow_) {
    for (const auto& [name, tensor] : overflow_->state().tensors) all.tensors[name] = tensor;
  }
  return all;
}

void Stepper::load_state(const State& state, const Tensors& average) {
  const auto objectives = SavedJson(state.json, "optimizer")["objectives"];
  for (ObjectiveStep& objective : objectives_) {
    const auto saved = objectives.find(objective.spec().name);
    if (!saved) {
      throw SnapshotError({"the snapshot has no optimiser state of objective \"" + objective.spec().name + "\"",
                           "part \"optimizer\"", "resume with the recipe that wrote it, or start over with --fresh"});
    }
    const std::string prefix = prefix_of(objective);
    State one;
    for (const auto& [name, tensor] : state.tensors) {
      if (name.starts_with(prefix)) one.tensors[name.substr(prefix.size())] = tensor;
    }
    objective.load_state(one, *saved, average);
  }
  copy_saved(state, "skipped", skipped_);
  copy_saved(state, "skipped_in_a_row", skipped_in_a_row_);
  if (!overflow_) return;
  for (auto& [name, own] : overflow_->state().tensors) check_saved(state, name, own);
  overflow_->load_state(state);
}

}  // namespace millrace
