// Resolves the words of a command line to a config: from presets, config files, environment and flags. Each of these overrides
// the ones before it.
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

// Takes --preset, --config (also --config-file, -c, --environment-file, -e), --run, --data, --off, the names of config files and
// every config flag. One ConfigError reports all mistakes, including those in `arguments.problems()`.
//
// If the words name the folder of a run, the run's config is the layer below the preset, and the run's preset is kept. With
// `fresh`, the run starts over and its old config is ignored. Throws UsageError if the folder holds another recipe's run.
[[nodiscard]] CommandConfig resolve_command_config(const Entry& entry, config::Arguments& arguments, bool fresh = false);

[[nodiscard]] bool names_a_config_file(const std::string& word);  // true for the suffixes .json, .toml, .yaml and .yml

// Takes the words that are neither flags nor values of flags, in order. These are a command's own words, and config files.
[[nodiscard]] std::vector<std::string> take_plain_words(const Entry& entry, config::Arguments& arguments);

// The schema of a recipe's run, with the recipe's defaults instead of the shared ones.
[[nodiscard]] config::Schema schema_with_defaults(const Entry& entry);

// A table of all keys with value and origin, a line each.
[[nodiscard]] std::string config_table(const config::Schema& schema, const config::Resolved& resolved);

// For predict and eval: the values that the command line sets, as {"dotted.key": value}. All other keys keep the run's values.
[[nodiscard]] Json config_overrides(const Entry& entry, config::Arguments& arguments);

// The folder of the run with these names. If all names are empty, a new folder for a run that starts now.
[[nodiscard]] std::filesystem::path folder_of_run(const Entry& entry, const RunNames& names);
// For commands that compute without a run: returns the device that a run with this config would use, and sets the number of
// threads.
[[nodiscard]] c10::Device ready_device(const DeviceConfig& config);

// Removes the flag --off from the arguments, in all its forms (--off=a,b), and returns the names that it lists.
[[nodiscard]] std::vector<std::string> take_off(config::Arguments& arguments);

// Makes the process keep freed memory, unless `off` names the switchboard's row keep_memory. The command line calls this early,
// because the row must act before the first large allocation.
void keep_memory_unless_off(const std::vector<std::string>& off);
void keep_memory_unless_off(const config::Resolved& resolved);

}  // namespace millrace
