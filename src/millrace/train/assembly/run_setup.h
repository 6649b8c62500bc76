// The parts of a run that exist before its recipe: config, device, switches, plan, and what the ranks know about each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/loader/loader.h"
#include "millrace/device/shared_cores.h"
#include "millrace/precision/gpu_settings.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/assembly/detail/process_inputs.h"
#include "millrace/train/assembly/memory_choice.h"
#include "millrace/train/assembly/run_request.h"
#include "millrace/train/assembly/weights.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/step/plan.h"
#include "millrace/train/step/timed_agreement.h"

namespace millrace {

// Belongs to one thread. Objects made with it refer to it. While the object exists, the process is set up for its run (see
// process_inputs.h).
class RunSetup {
 public:
  // The process's memory before the recipe is made, in bytes.
  struct BareMemory {
    std::uint64_t resident = 0;  // memory of the process itself
    std::uint64_t heap = 0;
  };

  // Chooses the device and the number of threads, and installs the guards of operations. Throws ConfigError for values that
  // contradict each other.
  explicit RunSetup(RunRequest request);
  ~RunSetup();
  RunSetup(const RunSetup&) = delete;
  RunSetup& operator=(const RunSetup&) = delete;

  [[nodiscard]] const RunRequest& request() const noexcept { return request_; }  // the request; its member `fs` is not null
  [[nodiscard]] telemetry::Console& console() const noexcept { return *request_.console; }
  [[nodiscard]] const RunConfig& config() const noexcept { return config_; }
  [[nodiscard]] Switches& switches() noexcept { return switches_; }
  [[nodiscard]] const Switches& switches() const noexcept { return switches_; }
  [[nodiscard]] Plan& plan() noexcept { return plan_; }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] Agreement& agreement() const noexcept;
  [[nodiscard]] telemetry::Timeline& timeline() noexcept { return timeline_; }
  [[nodiscard]] const BareMemory& bare_memory() const noexcept { return bare_; }

  // Adds a choice to the plan. Also records where the key's value comes from.
  void choose(const std::string& key, std::string value, std::string reason);
  [[nodiscard]] std::vector<std::string>& notices() noexcept { return notices_; }  // collected until the plan is shown
  // From now on the recipe's notices go to `show`, on the loop's thread.
  void show_notices_with(std::function<void(const std::string&)> show) { show_ = std::move(show); }

  // Makes the recipe on the run's device, inside a RecipeGuard, with its first weights. `places`: the folders for its Context.
  // `weights`: the model's first weights and the recipe's state that belongs to them.
  [[nodiscard]] std::unique_ptr<Recipe> make_recipe(const RecipeFolders& places, std::optional<Weights> weights = std::nullopt);
  [[nodiscard]] data::LoaderOptions loader_options(const data::Pipeline& pipeline, Split split) const;

 private:
  void choose_device();
  void choose_threads();
  void choose_gpu_settings();
  void choose_guards();
  void choose_transport();

  std::optional<ProcessInputs> inputs_;  // the first member, so that it is destroyed last and restores the states that the other
                                         // members set
  RunRequest request_;
  RunConfig config_;
  Switches switches_;
  telemetry::Timeline timeline_;
  std::unique_ptr<TimedAgreement> timed_;  // wraps request_.agreement if there are several processes
  Plan plan_;
  Context context_;
  std::optional<MemoryLimit> memory_limit_;
  std::optional<device::SharedCores> shared_cores_;
  BareMemory bare_;
  int loader_cores_ = 0;  // this rank's share of the machine's cores, if several ranks share the machine; 0 = all cores
  std::vector<std::string> notices_;
  std::function<void(const std::string&)> show_;
};

// Finds values of the shared sections that contradict each other.
[[nodiscard]] std::vector<Problem> problems_of(const RunConfig& config);
[[nodiscard]] precision::GpuSettings gpu_settings_of(const RunConfig& config, const at::Device& device);
// The loader's options for a pipeline, from the run's config and from the pipeline itself.
[[nodiscard]] data::LoaderOptions loader_options(const RunConfig& config, const Switches& switches,
                                                 const data::Pipeline& pipeline, Split split, telemetry::Console& console);

}  // namespace millrace
