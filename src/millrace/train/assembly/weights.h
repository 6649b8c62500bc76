// The weights of a trained model, from a run, a snapshot or a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/core/batch.h"
#include "millrace/telemetry/console.h"

namespace millrace {

struct Weights {
  std::map<std::string, Tensors> models;  // as in snapshot::Content; averaged if the run kept an average
  State recipe;                           // the recipe's own part; empty for a file of tensors
  Json frozen;                            // see record_of_frozen() in model_state.h; null if all weights are here
  Json values = Json::object();           // numbers and texts next to the tensors of a file, by name; metadata
  std::filesystem::path path;             // snapshot folder or file
  std::filesystem::path run;              // folder of the run it belongs to; "" for a file of tensors
  std::string which;                      // one line: "best snapshot, step 600 of runs/x"
  std::int64_t step = 0;                  // step of the snapshot; 0 for a file of tensors
  std::int64_t newest_step = 0;           // step of the run's newest whole snapshot; 0: not looked up
  std::string best;               // the metric that made it the best: "val_loss 0.1234"; "" if it was not chosen by a metric
  Json choices = Json::object();  // what trials and fallbacks chose in the run, by config key
  // Convolutions that were wrong in bf16 on the run's machine, as ConvolutionChoice::to_json() writes them; null if the snapshot
  // has no such record.
  Json convolutions;
};

// `from` is a run folder (its best snapshot, else the newest whole one), a snapshot folder, or a .safetensors or .pt file.
// UsageError if it does not exist; SnapshotError if it holds no whole snapshot.
[[nodiscard]] Weights load_weights(Fs& fs, const std::filesystem::path& from, telemetry::Console& console);

// Checkpoints of some trainers hold the weights as a part called "model_state_dict" or "state_dict", next to an optimiser and
// more. Replaces the file's tensors with that part, if it exists. Returns the part's name, or "".
std::string take_state_dict(Weights& weights);

// Removes what Python wrappers add to a model's own tensor names: each "module." (DistributedDataParallel), "_orig_mod."
// (torch.compile), and at the beginning "model.", "model_state_dict." and "state_dict." (Lightning and many trainers). If each of
// `wanted` is found exactly once under such names, with its shape, `all` becomes those tensors, and the result says what was
// removed: "the names' prefix \"module.\" is passed over". "" if the names are already the model's own, or if the match is
// ambiguous.
std::string pass_over_wrappers(Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);
// Before a model exists: removes the wrappers' prefix that all names of `all` share; returns it, "module._orig_mod.".
std::string take_common_wrappers(Tensors& all);
// The name of the part of `all`, "ema.net", that holds all of `wanted` with their shapes; else "".
[[nodiscard]] std::string part_with(const Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);

// The run folder: `from` itself, or the one whose snapshot `from` is; "" for a file.
[[nodiscard]] std::filesystem::path run_folder_of(Fs& fs, const std::filesystem::path& from);

}  // namespace millrace
