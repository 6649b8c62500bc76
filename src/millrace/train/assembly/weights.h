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
  std::map<std::string, Tensors> models;  // by name, as in snapshot::Content; if the run kept averages of its weights, these are
                                          // the averages
  State recipe;                           // the part of the snapshot that belongs to the recipe; empty for a file of tensors
  Json frozen;                            // see record_of_frozen() in model_state.h; null if no weights were left out
  Json values = Json::object();           // numbers, texts and other metadata that a file holds next to its tensors, by name
  std::filesystem::path path;             // snapshot folder or file
  std::filesystem::path run;              // folder of the run to which the snapshot belongs; "" for a file of tensors
  std::string which;                      // a line for the user: "best snapshot, step 600 of runs/x"
  std::int64_t step = 0;                  // step of the snapshot; 0 for a file of tensors
  std::int64_t newest_step = 0;           // step of the run's newest complete snapshot; 0: not looked up
  std::string best;               // the metric by which the snapshot is the run's best: "val_loss 0.1234"; "" if the snapshot
                                  // was not chosen by a metric
  Json choices = Json::object();  // choices of trials and fallbacks in the run, by config key
  // Convolutions that were wrong in bf16 on the run's machine, as ConvolutionChoice::to_json() writes them; null if the snapshot
  // has no such record.
  Json convolutions;
};

// Loads weights. `from` is a run folder (its best snapshot, otherwise its newest complete one), a snapshot folder, or a
// .safetensors or .pt file. Throws UsageError if `from` does not exist and SnapshotError if it holds no complete snapshot.
[[nodiscard]] Weights load_weights(Fs& fs, const std::filesystem::path& from, telemetry::Console& console);

// Some trainers' checkpoints hold the weights in a part called "model_state_dict" or "state_dict", next to optimiser state and
// more. If that part exists, it replaces the file's tensors. Returns the part's name, or "".
std::string take_state_dict(Weights& weights);

// Removes the prefixes that Python wrappers add to a model's tensor names: each "module." (DistributedDataParallel) and
// "_orig_mod." (torch.compile), and at the beginning "model.", "model_state_dict." and "state_dict." (Lightning and many
// trainers). If each tensor of `wanted` is then found exactly once, with its shape, `all` becomes those tensors, and the result
// is a line for the user that lists the removed prefixes. Returns "" if the names already are the model's own, or if a name fits
// no tensor or several tensors.
std::string pass_over_wrappers(Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);
// Like pass_over_wrappers(), before a model exists: removes the wrappers' prefix that all names of `all` share, and returns it,
// such as "module._orig_mod.".
std::string take_common_wrappers(Tensors& all);
// The name, such as "ema.net", of the part of `all` that holds all tensors of `wanted` with their shapes; "" if there is no such
// part.
[[nodiscard]] std::string part_with(const Tensors& all, const std::map<std::string, std::vector<std::int64_t>>& wanted);

// The run folder: `from` itself, or the folder of the run to which the snapshot `from` belongs; "" for a file.
[[nodiscard]] std::filesystem::path run_folder_of(Fs& fs, const std::filesystem::path& from);

}  // namespace millrace
