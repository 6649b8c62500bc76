// From the words of a command to a resolved config: presets, files, environment and flags in their order.
#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/config/arguments.h"
#include "millrace/config/schema.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/recipe/entry.h"

namespace millrace {

struct CommandConfig {
  config::Resolved resolved;
  std::string preset;  // "" = none
};

// Takes --preset, --config (also --config-file, -c, --environment-file, -e), --run, --data, --off, bare config files and every
// config flag. All mistakes, those in `arguments.problems()` included, come in one ConfigError.
//
// When they name the folder of a run, its config is the layer below the preset, and its preset is remembered; not with `fresh`,
// which starts over. UsageError when that is a run of another recipe.
[[nodiscard]] CommandConfig resolve_command_config(const Entry& entry, config::Arguments& arguments, bool fresh = false);

[[nodiscard]] bool names_a_config_file(const std::string& word);  // by its suffix

// Takes the words that are neither flags nor their values, in order: a command's own words, and config files.
[[nodiscard]] std::vector<std::string> take_plain_words(const Entry& entry, config::Arguments& arguments);

// The schema of a recipe's run with the recipe's own defaults in it.
[[nodiscard]] config::Schema schema_with_defaults(const Entry& entry);

// Every key with its value and origin, one a line.
[[nodiscard]] std::string config_table(const config::Schema& schema, const config::Resolved& resolved);

// For predict and eval: only what the command line says, as {"dotted.key": value}; what it leaves open keeps the run's value.
[[nodiscard]] Json config_overrides(const Entry& entry, config::Arguments& arguments);

// The folder of the run that these names are of; without names, that of a run which begins now.
[[nodiscard]] std::filesystem::path folder_of_run(const Entry& entry, const RunNames& names);
// For commands that compute without a run: the device that a run with this config takes, with its number of threads.
[[nodiscard]] c10::Device ready_device(const DeviceConfig& config);

// Words of --off=a,b in all its forms.
[[nodiscard]] std::vector<std::string> take_off(config::Arguments& arguments);

// Switchboard row keep_memory has to act before the first large allocation, so the command line does it.
void keep_memory_unless_off(const std::vector<std::string>& off);
void keep_memory_unless_off(const config::Resolved& resolved);

}  // namespace millrace
