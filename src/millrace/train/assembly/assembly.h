// Everything that a step needs: recipe, loaders, stepper, and the choices that are made by trials. A training run consists of an
// assembly, a run folder and a loop. A measurement uses only an assembly.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/kernel_trial.h"
#include "millrace/train/assembly/loaders.h"
#include "millrace/train/assembly/memory_account.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/assembly/run_setup.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/step/trial_time.h"

namespace millrace {

// An assembly is complete once it is constructed. It refers to its RunSetup, which must outlive it. Belongs to one thread.
class Assembly {
 public:
  // `kept`: choices that trials made before the snapshot, {option: value}. These choices are not tried again, because another
  // choice would change bits of the results. Throws ConfigError if the ranks can't step as the config says.
  Assembly(RunSetup& setup, std::unique_ptr<Recipe> recipe, Loaders loaders, Json kept = Json::object());
  Assembly(RunSetup& setup, const RecipeFolders& places);  // makes a new recipe and its loaders
  ~Assembly();
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  [[nodiscard]] RunSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] const RunConfig& config() const noexcept { return setup_.config(); }
  [[nodiscard]] const Switches& switches() const noexcept { return setup_.switches(); }
  [[nodiscard]] Recipe& recipe() const noexcept { return *recipe_; }
  [[nodiscard]] const Loaders& loaders() const noexcept { return loaders_; }
  [[nodiscard]] Stepper& stepper() const noexcept { return *stepper_; }

  // Limits the time of the trials to what the run's length allows (TrialTime). A run calls this before decide(). Choices that
  // are not tried in that time keep their defaults: Millrace's kernels (LibTorch's for products in fp32), fp32, and the
  // contiguous layout.
  void limit_trials(std::function<double()> clock = steady_seconds);
  void decide();  // chooses kernels, number format and layout, by trials if the config leaves them open; the same on all ranks
  void decide_memory();   // chooses what the backward pass recomputes
  void note_undecided();  // called instead of decide() and decide_memory(): writes into the plan what trials would decide
  // Called by decide() before the first bf16 step on a CPU: tests the step's convolutions in a separate process and works around
  // the faults found (device/convolution_guard.h).
  void try_convolutions();
  // True if a bf16 trial is safe in a run that computes in another format. On a GPU this is always true. On a CPU this is true
  // if the step has no convolutions, or if an earlier run tested them; the faults that were found are then avoided from here on.
  // To see whether the step has convolutions, the function may make one step in fp32, which leaves no trace.
  [[nodiscard]] bool may_try_bf16(const Batch& batch);
  [[nodiscard]] const MemoryChoice& memory() const noexcept { return memory_; }  // empty before decide_memory()
  // Empty before try_convolutions().
  [[nodiscard]] const ConvolutionChoice& convolutions() const noexcept { return convolutions_; }

  // The bytes that each part of the run takes now; activations are the bytes that a step adds. `step_peak`: the most bytes of
  // tensors that a step needed.
  [[nodiscard]] MemoryAccount memory_account(std::uint64_t step_peak, bool copies_snapshots) const;
  [[nodiscard]] BatchContext batch_context() const;
  // A prepared micro-batch like the first one of a training step or of a validation. Reading this batch leaves no trace. nullopt
  // if there is no batch. `prepares`: the recipe that prepares the batch; null = the run's recipe.
  [[nodiscard]] std::optional<Batch> trial_batch(Split split = Split::train, Recipe* prepares = nullptr) const;

 private:
  void make_stepper();
  void plan_rates();
  [[nodiscard]] KeptTrials& kept_trials();
  [[nodiscard]] bool may_compute_in(at::ScalarType half) const;
  [[nodiscard]] std::string trial_of(std::string_view what, const Batch& batch) const;  // the trial's name in KeptTrials
  void try_kernels();                                                                   // defined in kernel_trial.cpp
  void plan_kernels();      // writes the kernels of the chosen format into the plan
  void decide_precision();  // defined in precision_choice.cpp
  [[nodiscard]] precision::Decision try_precisions();
  void decide_tf32();
  [[nodiscard]] std::optional<at::ScalarType> known_format() const;
  void decide_layout();  // defined in layout_trial.cpp
  [[nodiscard]] Choice try_layouts();
  [[nodiscard]] const Json* kept(const std::string& option) const;
  // Calls `trial` with the trial batch. If memory runs out, calls `trial` again with half of the batch, then a quarter, and so
  // on. Returns a note about the part of the batch that was used, for the reason of the choice; "" for the whole batch. nullopt
  // if there is no batch.
  std::optional<std::string> try_on_batch(const std::function<void(const Batch&)>& trial);
  // Calls `trial`. Returns false if `trial` gave up because the time of the trials was over.
  template <class Trial>
  [[nodiscard]] static bool within_time(const Trial& trial) {
    try {
      trial();
      return true;
    } catch (const TrialsGivenUp&) {
      return false;
    }
  }

  RunSetup& setup_;
  std::unique_ptr<Recipe> recipe_;
  Loaders loaders_;
  Json kept_;
  std::unique_ptr<Stepper> stepper_;
  MemoryChoice memory_;
  ConvolutionChoice convolutions_;
  TrialTime trial_time_;
  std::optional<KeptTrials> kept_trials_;
  std::map<std::string, std::vector<KernelChoice>> kernel_choices_;  // kernels by the number format in which they were tried
  std::set<std::string> kernels_given_up_;                           // number formats whose kernel trials ran out of time
};

// The folders for a command that writes nothing. `plan_only`: the command needs only the plan.
[[nodiscard]] RecipeFolders folders_to_look_in(bool plan_only = false);

}  // namespace millrace
