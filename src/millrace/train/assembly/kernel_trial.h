// Chooses the kernels that a run uses on this CPU: ours or LibTorch's, by a trial of the run's own step
// (kernels/operation_trial.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernels/operation_trial.h"
#include "millrace/train/assembly/kept_trials.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/trial_time.h"

namespace millrace {

struct KernelChoice {
  kernels::Operation operation;
  c10::ScalarType type;
  kernels::Implementation implementation;
  std::string reason;                        // includes the measured times
  [[nodiscard]] std::string option() const;  // the option's name in plans and snapshots: "kernels.weight_gradient.bf16"
};

[[nodiscard]] std::string_view name_of(kernels::Implementation implementation) noexcept;  // "ours", "library"

// `step` makes one training step that leaves no trace; it is called twice if a trial is worthwhile. Operations with too little
// work in a step get no choice and keep the default implementation. Takes known times from `kept`, and adds those measured while
// no other program used the cores. When the time of the trials is over, operations that are not timed yet keep the default.
[[nodiscard]] std::vector<KernelChoice> try_kernels(const std::function<void()>& step, KeptTrials& kept,
                                                    const TrialTime& time = {});

// The kernel choices among all choices of a snapshot, {option: value}.
struct KeptKernels {
  std::vector<KernelChoice> choices;
  std::string tried_on;  // the CPU's instruction set at the time; "" = not recorded
  // True if the choices are valid on the instruction set `set`. They are not valid on another set, because there the speeds and
  // the bits of both implementations are different.
  [[nodiscard]] bool hold_on(std::string_view set) const { return tried_on.empty() || tried_on == set; }
};
[[nodiscard]] KeptKernels kept_kernels(const Json& choices);
inline constexpr const char* kTriedOn = "device.instructions";  // the instruction set's option among the choices

// choose_all() chooses this implementation for all operations in every number format. choose() makes the given choices.
void choose_all(kernels::Implementation implementation) noexcept;
void choose(const std::vector<KernelChoice>& choices) noexcept;

}  // namespace millrace
