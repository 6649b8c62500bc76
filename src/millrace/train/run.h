// Running a recipe from a resolved config: what `millrace train` calls, and what predict, eval and generate start from.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/config/schema.h"
#include "millrace/telemetry/run_log.h"
#include "millrace/train/entry.h"
#include "millrace/train/switchboard.h"

namespace millrace {

// The whole schema of a recipe's run: shared sections and its own.
[[nodiscard]] config::Schema schema_of(const Entry& entry);
// Aliases all recipes share (--amp, --epochs, --batch_size, --config-file ... see docs), then the recipe's own.
[[nodiscard]] std::vector<config::Alias> aliases_of(const Entry& entry);

// What is wrong with values that the schema takes, one by one or together.
[[nodiscard]] std::vector<Problem> run_problems(const config::Resolved& config);

struct RunRequest {
  const Entry* entry = nullptr;
  config::Resolved config;
  std::string preset;                     // "" = none
  std::filesystem::path config_folder;    // of the first config file, else the current folder
  std::vector<std::string> command_line;  // kept in the log
  bool fresh = false;                     // start over in a folder that holds a run; see RunFolder
  bool dry_run = false;                   // print the plan and stop
  telemetry::Console* console = nullptr;  // required
  Fs* fs = nullptr;                       // null = Fs::real()
};

struct RunOutcome {
  Json summary;  // as written to summary.json
  std::filesystem::path run_folder;
  int exit_code = 0;  // 0, or 128 + n after signal n
};

// Trains until done, stopped or failed. Throws Error; an error after the first step has saved a snapshot when the state is good.
RunOutcome run_training(const RunRequest& request);

// A trained model, ready to be used on new data.
struct Loaded {
  config::Resolved config;
  std::unique_ptr<Switches> switches;
  std::unique_ptr<Recipe> recipe;  // weights loaded, eval mode
  std::filesystem::path snapshot;  // or the file of weights
  std::string which;               // one line: "best snapshot of RUN, step 600 (val_loss 1.71)"
};

// `from` is a run folder (best snapshot if there is one, else the newest valid), a snapshot folder, or a .safetensors or .pt file
// (then `config` must be given). Values in `overrides` replace those of the run's config (device, data.dir, generate.*).
Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console);

// Validation metrics of a loaded model over its recipe's validation split (data may be redirected by overrides).
std::map<std::string, double> evaluate(Loaded& loaded, telemetry::Console& console);

// `millrace bench step`.
struct StepBenchOptions {
  std::string shape = "cpu-small";
  std::string precision = "auto";  // fp32 | bf16 | fp16
  std::int64_t threads = 2;
  std::int64_t steps = 9;
  std::int64_t warmup = 3;
  std::vector<std::string> off;
  Json overrides = Json::object();  // dotted keys over the shape's config, e.g. {"recipe.model_dropout": 0}
};
// Step by step, for benches that interleave it with a peer.
class StepBench {
 public:
  StepBench(const Entry& entry, const StepBenchOptions& options);  // the batch is made; no step is done yet
  ~StepBench();
  double step();                                                   // one step, the loss read at its end; milliseconds
  [[nodiscard]] Json report(const std::vector<double>& ms) const;  // of these steps
 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  StepBenchOptions options_;
};

// {recipe, shape, precision, steps, ms: [...], ms_p50, ms_min, first_step_s_since_process_start, peak_memory_bytes, loss_first,
// loss_last, memory: {step_peak_bytes (of tensors), resident_before_bytes, recompute, and with a budget what try_memory says},
// switches, ...}
[[nodiscard]] Json bench_step(const Entry& entry, const StepBenchOptions& options);

}  // namespace millrace
