// All that a step needs: recipe, loaders, stepper, and the choices that are left to trials. A training session is an assembly
// with a run folder and a loop around it; a measurement is an assembly alone.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/kernel_trial.h"
#include "millrace/train/assembly/loaders.h"
#include "millrace/train/assembly/memory_account.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/assembly/run_setup.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/stepper.h"

namespace millrace {

// Whole once it is made; refers to the setup. Belongs to one thread.
class Assembly {
 public:
  // `kept`: choices of trials that a snapshot holds, {option: value}: they are not tried again, since another choice would change
  // bits. ConfigError where the ranks can't step as the config says.
  Assembly(RunSetup& setup, std::unique_ptr<Recipe> recipe, Loaders loaders, Json kept = Json::object());
  Assembly(RunSetup& setup, const RecipeFolders& places);  // with a new recipe and its loaders
  ~Assembly();
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  [[nodiscard]] RunSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] const RunConfig& config() const noexcept { return setup_.config(); }
  [[nodiscard]] const Switches& switches() const noexcept { return setup_.switches(); }
  [[nodiscard]] Recipe& recipe() const noexcept { return *recipe_; }
  [[nodiscard]] const Loaders& loaders() const noexcept { return loaders_; }
  [[nodiscard]] Stepper& stepper() const noexcept { return *stepper_; }

  void decide();          // kernels, number format and layout, by trials where the config leaves them open; the same on all ranks
  void decide_memory();   // what is computed again in the backward pass
  void note_undecided();  // instead of both: into the plan, what trials would decide
  // A part of decide(): before the first step in bf16 on a CPU the step's convolutions are tried in a process of their own, and
  // what is found is gone around (device/convolution_guard.h).
  void try_convolutions();
  // True if a trial in bf16 is safe during a run that computes otherwise: an earlier run tested the step's convolutions, whose
  // faults are avoided from here on, or the step has none, which a step in fp32 without a trace tells. Always true on a GPU.
  [[nodiscard]] bool may_try_bf16(const Batch& batch);
  [[nodiscard]] const MemoryChoice& memory() const noexcept { return memory_; }  // empty before decide_memory()
  [[nodiscard]] const ConvolutionChoice& convolutions() const noexcept {
    return convolutions_;
  }  // empty before try_convolutions()

  // What the parts take now; the activations are what a step needs beside them. `step_peak`: the most tensors held in a step.
  [[nodiscard]] MemoryAccount memory_account(std::uint64_t step_peak, bool copies_snapshots) const;
  [[nodiscard]] BatchWay way() const;
  // A prepared micro-batch as the first step's, or a validation's first; leaves no trace. nullopt: there is no batch.
  [[nodiscard]] std::optional<Batch> trial_batch(Split split = Split::train) const;

 private:
  void make_stepper();
  void plan_rates();
  [[nodiscard]] KeptTrials& kept_trials();
  [[nodiscard]] bool may_compute_in(at::ScalarType half) const;
  [[nodiscard]] std::string trial_of(std::string_view what, const Batch& batch) const;  // its name among kept trials
  void try_kernels();                                                                   // kernel_trial.cpp
  void plan_kernels();                                                                  // of the number format that was chosen
  void decide_precision();                                                              // precision_choice.cpp
  [[nodiscard]] precision::Decision try_precisions();
  void decide_tf32();
  [[nodiscard]] std::optional<at::ScalarType> known_format() const;
  void decide_layout();  // layout_trial.cpp
  [[nodiscard]] Choice try_layouts();
  [[nodiscard]] const Json* kept(const std::string& option) const;
  // Calls it with the trial batch, or with the half, the quarter … that fits into memory. What to add to the reason of a choice
  // that rests on it: "" for the whole batch; nullopt = there is no batch.
  std::optional<std::string> try_on_batch(const std::function<void(const Batch&)>& trial);

  RunSetup& setup_;
  std::unique_ptr<Recipe> recipe_;
  Loaders loaders_;
  Json kept_;
  std::unique_ptr<Stepper> stepper_;
  MemoryChoice memory_;
  ConvolutionChoice convolutions_;
  std::optional<KeptTrials> kept_trials_;
  std::map<std::string, std::vector<KernelChoice>> kernel_choices_;  // by the number format that they were tried in
};

// Of files for what only looks: nothing is written there. `plan_only`: the plan alone is asked for.
[[nodiscard]] RecipeFolders folders_to_look_in(bool plan_only = false);

}  // namespace millrace
