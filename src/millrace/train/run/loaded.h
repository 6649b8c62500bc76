// A trained model that is ready for new data: for predict, eval and the recipes' own commands.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "millrace/config/schema.h"
#include "millrace/telemetry/console.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/recipe/entry.h"

namespace millrace {
namespace device {
class SharedCores;
}

struct Loaded {
  config::Resolved config;
  std::shared_ptr<device::SharedCores> shared_cores;
  std::unique_ptr<RunConfig> shared;  // the sections that all recipes share; `recipe` refers to it and to `switches`
  std::shared_ptr<Switches> switches;
  std::unique_ptr<Recipe> recipe;  // the recipe with its weights loaded, in evaluation mode and in the run's memory layout
  at::Device device = at::kCPU;    // the device of the model
  std::optional<at::ScalarType> autocast;  // the run's number format; nullopt = fp32
  std::filesystem::path snapshot;          // the folder of the snapshot, or the file of weights
  std::string which;                       // a line for the user: "best snapshot of RUN, step 600 (val_loss 1.71)"
};

// Loads a model. `from` is a run folder (its best snapshot, otherwise its newest valid one), a snapshot folder, or a .safetensors
// or .pt file, for which `config` is required. Values in `overrides` replace those of the run's config (device, data.dir,
// generate.*).
Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console);

}  // namespace millrace
