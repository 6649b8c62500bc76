// Resolves the words of a command to a config: from presets, files, environment and flags, in this order.
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
  std::string preset;  // "" = no preset
};

// Takes --preset, --config (also --config-file, -c, --environment-file, -e), --run, --data, --off, bare config files and every
// config flag. One ConfigError reports all mistakes, including those in `arguments.problems()`.
//
// If the words name the folder of a run, its config is the layer below the preset, and its preset is kept; not with `fresh`,
// which starts over. UsageError if it is a run of another recipe.
[[nodiscard]] CommandConfig resolve_command_config(const Entry& entry, config::Arguments& arguments, bool fresh = false);

[[nodiscard]] bool names_a_config_file(const std::string& word);  // by its suffix

// Takes the words that are neither flags nor flags' values, in order: a command's own words, and config files.
[[nodiscard]] std::vector<std::string> take_plain_words(const Entry& entry, config::Arguments& arguments);

// The schema of a recipe's run with the recipe's own defaults.
[[nodiscard]] config::Schema schema_with_defaults(const Entry& entry);

// Every key with its value and origin, one a line.
[[nodiscard]] std::string config_table(const config::Schema& schema, const config::Resolved& resolved);

// For predict and eval: only the values on the command line, as {"dotted.key": value}; other keys keep the run's values.
[[nodiscard]] Json config_overrides(const Entry& entry, config::Arguments& arguments);

// The folder of the run with these names; without names, the folder of a run that starts now.
[[nodiscard]] std::filesystem::path folder_of_run(const Entry& entry, const RunNames& names);
// For commands that compute without a run: the device that a run with this config uses, with its number of threads set.
[[nodiscard]] c10::Device ready_device(const DeviceConfig& config);

// Takes the words of --off=a,b in all its forms.
[[nodiscard]] std::vector<std::string> take_off(config::Arguments& arguments);

// Keeps freed memory unless `off` names the switchboard's row keep_memory. The command line calls it, since the row must act
// before the first large allocation.
void keep_memory_unless_off(const std::vector<std::string>& off);
void keep_memory_unless_off(const config::Resolved& resolved);

}  // namespace millrace
