// Which kernels a run takes on this CPU: a trial of its own step decides between ours and LibTorch's (kernels/operation_trial.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernels/operation_trial.h"
#include "millrace/train/assembly/kept_trials.h"
#include "millrace/train/recipe/config.h"

namespace millrace {

struct KernelChoice {
  kernels::Operation operation;
  c10::ScalarType type;
  kernels::Implementation implementation;
  std::string reason;                        // with the times
  [[nodiscard]] std::string option() const;  // "kernels.weight_gradient.bf16", as plans and snapshots name it
};

[[nodiscard]] std::string_view name_of(kernels::Implementation implementation) noexcept;  // "ours", "library"

// `step` makes one training step that leaves no trace; it is made twice where it is worth a trial. Operations that do too little
// in a step to matter have no choice, and go the way they go untried. Takes known times from `kept`, and adds those that were
// measured while no other program had the cores.
[[nodiscard]] std::vector<KernelChoice> try_kernels(const std::function<void()>& step, KeptTrials& kept);

// What the choices of a snapshot, {option: value}, say of kernels.
struct KeptKernels {
  std::vector<KernelChoice> choices;
  std::string tried_on;  // the instruction set; "" = nobody wrote it down
  // On another set the faster way may be another one, and the bits are others whichever is taken.
  [[nodiscard]] bool hold_on(std::string_view set) const { return tried_on.empty() || tried_on == set; }
};
[[nodiscard]] KeptKernels kept_kernels(const Json& choices);
inline constexpr const char* kTriedOn = "device.instructions";  // their option there

// All operations one way, in every number format.
void choose_all(kernels::Implementation implementation) noexcept;
void choose(const std::vector<KernelChoice>& choices) noexcept;

}  // namespace millrace
