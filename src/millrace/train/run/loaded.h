// A trained model, ready to be used on new data: for predict, eval and the recipes' own commands.
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
  std::unique_ptr<RunConfig> shared;  // the sections that all recipes share; the recipe refers to it, and to the switches
  std::shared_ptr<Switches> switches;
  std::unique_ptr<Recipe> recipe;          // weights loaded, eval mode, in the run's layout
  at::Device device = at::kCPU;            // the model's
  std::optional<at::ScalarType> autocast;  // the run's number format; nullopt = fp32
  std::filesystem::path snapshot;          // the snapshot, or the file of weights
  std::string which;                       // one line: "best snapshot of RUN, step 600 (val_loss 1.71)"
};

// `from` is a run folder (its best snapshot if there is one, else the newest valid one), a snapshot folder, or a .safetensors or
// .pt file (which needs `config`). Values in `overrides` replace those of the run's config (device, data.dir, generate.*).
Loaded load_for_inference(const Entry& entry, const std::filesystem::path& from, const config::Resolved* config,
                          const Json& overrides, telemetry::Console& console);

}  // namespace millrace
