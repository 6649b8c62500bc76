// One training session, from a typed config and a recipe factory to the summary. run_training() and train() are both this.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/memory_choice.h"
#include "millrace/train/run.h"
#include "millrace/train/run_folder.h"
#include "millrace/train/trainer.h"

namespace millrace {

struct SessionRequest {
  std::string recipe;
  std::string preset;
  config::Resolved config;
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;
  std::vector<std::string> free_on_resume;
  std::filesystem::path config_folder;
  RunPlace run_place;  // no folder = nothing is written
  std::vector<std::string> command_line;
  bool fresh = false;
  bool dry_run = false;
  telemetry::Console* console = nullptr;
  Fs* fs = nullptr;
};

// Set-up in order: folder and lock, what to resume from, device and threads, recipe, loaders, precision; then the loop.
class Session {
 public:
  explicit Session(SessionRequest request);
  ~Session();
  RunOutcome run();
  Json ceiling(double seconds);  // instead of run(): see bench_recipe_loader; loader_bench.cpp
  Json estimate();               // instead of run(): see estimate_memory; memory_search.cpp
  Json try_whole_step();         // instead of run(): a step, a validation batch and another step; see find_max_batch

 private:
  void open_folder();  // session_folder.cpp
  void find_snapshot();
  void begin_folder();
  [[nodiscard]] bool already_complete() const;
  void choose_device();
  void make_recipe();
  void make_loaders();
  void choose_cache(data::Pipeline& training, data::Pipeline& held_out);
  void make_stepper();
  void make_step();  // all that a step needs, without a run around it
  void decide_precision();
  [[nodiscard]] precision::Decision try_precisions();
  [[nodiscard]] std::optional<at::ScalarType> known_format() const;
  void decide_layout();  // layout_trial.cpp
  void decide_memory();
  [[nodiscard]] const Json* kept_choice(const std::string& option) const;
  // A prepared micro-batch as the first step's; leaves no trace.
  [[nodiscard]] std::optional<Batch> trial_batch() const;
  // Calls it with that batch, or with the half, the quarter … that fits into memory. What to add to the reason of a choice that
  // rests on it: "" for the whole batch; nullopt = there is no batch.
  std::optional<std::string> try_on_batch(const std::function<void(const Batch&)>& trial) const;
  void make_trainer();
  void restore();
  void introduce();
  void show_samples(const std::string& title);
  RunOutcome finish(std::optional<Ending> ending, const std::string& error);
  void origin_choice(const std::string& key, std::string value, std::string reason);

  SessionRequest request_;
  RunConfig config_;
  Switches switches_;
  Plan plan_;
  Context context_;
  std::optional<MemoryLimit> memory_limit_;
  MemoryChoice memory_;
  std::unique_ptr<RunFolder> folder_;  // null when nothing is written
  std::unique_ptr<telemetry::RunLog> log_;
  std::unique_ptr<telemetry::EventWriter> events_;
  std::optional<snapshot::Content> resumed_;
  std::filesystem::path resumed_from_;
  std::optional<std::int64_t> branches_after_;  // train.resume names an older snapshot: the later ones make way
  std::vector<std::string> notices_;
  std::unique_ptr<Recipe> recipe_;
  std::unique_ptr<data::Loader> loader_;
  std::unique_ptr<data::Loader> validation_;
  std::optional<data::Pipeline> trial_pipeline_;
  std::shared_ptr<data::SampleCache> cache_;  // null = off
  telemetry::Timeline timeline_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<Trainer> trainer_;
  std::int64_t total_steps_ = 0;
  Json facts_ = Json::object();
};

// Sample options of a pipeline from the run's config and the pipeline's own wishes.
[[nodiscard]] data::LoaderOptions loader_options(const RunConfig& config, const Switches& switches,
                                                 const data::Pipeline& pipeline, Split split, telemetry::Console& console);
// $XDG_CACHE_HOME/millrace, else ~/.cache/millrace, else runs/cache.
[[nodiscard]] std::filesystem::path cache_folder();
[[nodiscard]] Json versions();  // of Millrace, LibTorch, the compiler, the CPU capability

}  // namespace millrace
