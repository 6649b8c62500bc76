// The weights of a trained model, wherever they lie.
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
  std::map<std::string, Tensors> models;  // as in snapshot::Content; averaged where the run kept an average
  State recipe;                           // the recipe's own part; empty for a file of tensors
  Json frozen;                            // see record_of_frozen() in model_state.h; null where nothing was left out
  Json values = Json::object();           // of a file: numbers and texts beside its tensors, by name; metadata
  std::filesystem::path path;             // snapshot folder or file
  std::filesystem::path run;              // folder of the run it belongs to; "" for a file of tensors
  std::string which;                      // one line: "best snapshot, step 600 of runs/x"
  std::int64_t step = 0;                  // of the snapshot; 0 for a file of tensors
  std::int64_t newest_step = 0;           // of the run's newest whole snapshot; 0: it was not looked for
  std::string best;                       // the metric that made it the best: "val_loss 0.1234"; "" when it was not chosen so
  Json choices = Json::object();          // what trials and fallbacks of the run chose, by config key
  // Convolutions that were not right in bf16 where the run was made, as ConvolutionChoice::to_json() says it; null where its
  // snapshot does not.
  Json convolutions;
};

// `from` is a run folder (its best snapshot, else the newest whole one), a snapshot folder, or a .safetensors or .pt file.
// UsageError when it does not exist; SnapshotError when it holds nothing whole.
[[nodiscard]] Weights load_weights(Fs& fs, const std::filesystem::path& from, telemetry::Console& console);

// A checkpoint of another trainer keeps the weights beside an optimiser and more, as "model_state_dict" or "state_dict": the
// tensors of a file become those of that part, if it has one. Returns its name, or "".
std::string take_state_dict(Weights& weights);

// Tensors under the names that wrappers of Python give a model's own: each "module." (DistributedDataParallel), "_orig_mod."
// (torch.compile), and before all others "model.", "model_state_dict." and "state_dict." (Lightning and many trainers). Where
// each of `wanted` is there exactly once by such names, with its shape, `all` becomes those, and what was passed over is told:
// "the names' prefix \"module.\" is passed over". "" where the names are the model's own already, or it can't be told whose they
// are.
std::string pass_over_wrappers(Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);
// Before a model is there: what stands before every name of `all` of those words goes; returns it, "module._orig_mod.".
std::string take_common_wrappers(Tensors& all);
// Where all of `wanted` lie below one part of `all`, with their shapes: its name, "ema.net"; else "".
[[nodiscard]] std::string part_with(const Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);

// The run folder that `from` is, or whose snapshot it is; "" for a file.
[[nodiscard]] std::filesystem::path run_folder_of(Fs& fs, const std::filesystem::path& from);

}  // namespace millrace
