// All that a step needs, made from a resolved config: device, switches, recipe, loaders, stepper, and the choices that are left
// to trials. A training session is an assembly with a run folder and a loop around it; a measurement is an assembly alone.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/core/agreement.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/cache/disk_cache.h"
#include "millrace/data/loader/loader.h"
#include "millrace/device/shared_cores.h"
#include "millrace/precision/gpu_settings.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/train/assembly/convolution_choice.h"
#include "millrace/train/assembly/kernel_trial.h"
#include "millrace/train/assembly/memory_account.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/step/micro_batches.h"
#include "millrace/train/step/pinned_arena.h"
#include "millrace/train/step/plan.h"
#include "millrace/train/step/stepper.h"
#include "millrace/train/step/timed_agreement.h"

namespace millrace {

struct AssemblyRequest {
  std::string recipe;  // its name
  config::Resolved config;
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;
  telemetry::Console* console = nullptr;  // required
  Agreement* agreement = nullptr;         // null = one process
};

// The parts are made in the order of the functions below; each needs those before it. Belongs to one thread.
class Assembly {
 public:
  explicit Assembly(AssemblyRequest request);  // ConfigError for values that do not fit each other
  ~Assembly();
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  void choose_device();
  // Weights that the model begins with, and the recipe's state that belongs to them; before make_recipe().
  void begin_with(Weights weights);
  // `places`: of files, as the recipe's context gives them.
  void make_recipe(const RecipePlaces& places);
  // `note`: told of what the loader changes while it runs; null = shown on the console.
  void make_loaders(std::function<void(const std::string&)> note = nullptr);
  // `kept`: choices of trials that a snapshot holds, {option: value}: they are not tried again, since another choice would change
  // bits.
  void make_stepper(Json kept = Json::object());
  void decide();          // kernels, number format and layout, by trials where the config leaves them open; the same on all ranks
  void decide_memory();   // what is computed again in the backward pass
  void note_undecided();  // instead of both: into the plan, what trials would decide
  // A part of decide(): before the first step in bf16 on a CPU the step's convolutions are tried in a process of their own, and
  // what is found is gone around (device/convolution_guard.h).
  void try_convolutions();
  // Whether a step in bf16 may be tried beside a run that computes otherwise: on a CPU where an earlier run tried the step's
  // convolutions, whose faults are gone around from here on, or where it has none, which a step in fp32 without a trace tells.
  [[nodiscard]] bool may_try_bf16(const Batch& batch);

  [[nodiscard]] const AssemblyRequest& request() const noexcept { return request_; }
  [[nodiscard]] const RunConfig& config() const noexcept { return config_; }
  [[nodiscard]] const Switches& switches() const noexcept { return switches_; }
  [[nodiscard]] Plan& plan() noexcept { return plan_; }
  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] Agreement& agreement() const noexcept;
  [[nodiscard]] Recipe& recipe() const { return *recipe_; }
  [[nodiscard]] const data::Pipeline& training_pipeline() const { return *input_.pipeline; }
  [[nodiscard]] data::Loader& loader() const { return *input_.loader; }
  [[nodiscard]] data::Loader* validation() const noexcept { return input_.validation.get(); }  // null = no validation
  [[nodiscard]] data::Cache* cache() const noexcept;                                           // null = off
  [[nodiscard]] telemetry::Timeline& timeline() noexcept { return timeline_; }
  [[nodiscard]] Stepper& stepper() const { return *stepper_; }
  [[nodiscard]] const MemoryChoice& memory() const noexcept { return memory_; }
  [[nodiscard]] const ConvolutionChoice& convolutions() const noexcept { return convolutions_; }  // see try_convolutions()
  // What the parts take now; the activations are what a step needs beside them. `step_peak`: the most tensors held in a step.
  [[nodiscard]] MemoryAccount memory_account(std::uint64_t step_peak, bool copies_snapshots) const;
  [[nodiscard]] std::vector<std::string>& notices() noexcept { return notices_; }  // of the recipe, until the plan is shown
  // What the recipe says from now on goes there, on the loop's thread.
  void tell_notices_to(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }

  [[nodiscard]] std::int64_t total_steps() const;  // 0 = open end, or not known before make_loaders()
  [[nodiscard]] std::int64_t total_steps(std::int64_t epochs, std::int64_t max_steps) const;  // of a run of other length
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] std::int64_t global_batch() const;  // rows of a full step, over all data sets, ranks and accumulated batches
  [[nodiscard]] data::LoaderOptions loader_options(const data::Pipeline& pipeline, Split split) const;
  [[nodiscard]] BatchWay way();
  // A prepared micro-batch as the first step's, or a validation's first; leaves no trace. nullopt: there is no batch.
  [[nodiscard]] std::optional<Batch> trial_batch(Split split = Split::train);
  // Puts a choice into the plan with the origin of its value.
  void choose(const std::string& key, std::string value, std::string reason);

 private:
  void choose_guards();
  void choose_transport();
  void choose_cache(data::Pipeline& training, data::Pipeline& held_out);
  void plan_slots(const SlotMemory& memory);
  void choose_disk_cache(data::Pipeline& training, data::Pipeline& held_out);
  void plan_rates();
  [[nodiscard]] KeptTrials& kept_trials();
  [[nodiscard]] bool may_compute_in(at::ScalarType half) const;
  void try_kernels();       // kernel_trial.cpp
  void plan_kernels();      // of the number format that was chosen
  void decide_precision();  // precision_choice.cpp
  [[nodiscard]] precision::Decision try_precisions();
  void choose_gpu_settings();  // precision_choice.cpp
  void decide_tf32();
  [[nodiscard]] std::optional<at::ScalarType> known_format() const;
  void decide_layout();  // layout_trial.cpp
  [[nodiscard]] Choice try_layouts();
  [[nodiscard]] const Json* kept(const std::string& option) const;
  // Calls it with the trial batch, or with the half, the quarter … that fits into memory. What to add to the reason of a choice
  // that rests on it: "" for the whole batch; nullopt = there is no batch.
  std::optional<std::string> try_on_batch(const std::function<void(const Batch&)>& trial);

  AssemblyRequest request_;
  std::unique_ptr<TimedAgreement> timed_;  // what request_.agreement is, of several processes
  RunConfig config_;
  Switches switches_;
  Plan plan_;
  Context context_;
  std::optional<MemoryLimit> memory_limit_;
  std::optional<device::SharedCores> shared_cores_;
  MemoryChoice memory_;
  ConvolutionChoice convolutions_;
  struct {
    std::uint64_t bytes = 0, heap = 0;
  } bare_;  // private memory of the process before anything was made, and its heap
  struct {
    int loader = 0;                   // 0 = all
  } cores_;                           // of the machine, where ranks share it
  std::unique_ptr<Weights> weights_;  // until make_recipe()
  std::vector<std::string> notices_;
  std::function<void(const std::string&)> tell_;
  Json kept_;
  std::unique_ptr<Recipe> recipe_;
  struct {
    std::optional<data::Pipeline> pipeline, held_out;  // of the splits, without a cache
    std::shared_ptr<data::SampleCache> cache;          // of the two at most one
    std::shared_ptr<data::DiskCache> disk_cache;
    std::unique_ptr<data::Loader> loader, validation;
  } input_;
  telemetry::Timeline timeline_;
  std::unique_ptr<Stepper> stepper_;
  std::optional<KeptTrials> kept_trials_;
  std::map<std::string, std::vector<KernelChoice>> kernel_choices_;  // by the number format that they were tried in
};

// Values of the shared sections that do not fit each other.
[[nodiscard]] std::vector<Problem> problems_of(const RunConfig& config);
[[nodiscard]] precision::GpuSettings gpu_settings_of(const RunConfig& config, const at::Device& device);
// Loader options of a pipeline: the run's config, and what the pipeline itself asks for.
[[nodiscard]] data::LoaderOptions loader_options(const RunConfig& config, const Switches& switches,
                                                 const data::Pipeline& pipeline, Split split, telemetry::Console& console);

}  // namespace millrace
