// A registry row: what the command line knows of a recipe.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/train/recipe.h"

namespace millrace {

// A command of a recipe's own, such as `millrace generate`. Gets the words after the command's name; returns the exit code.
struct RecipeCommand {
  std::string name;
  std::string help;
  std::function<int(std::span<const std::string> arguments)> run;
};

// One training step on synthetic input, for `millrace bench step`.
struct BenchShape {
  std::string name;  // "cpu-small"
  std::string help;
  Json config;                                                         // over the recipe's defaults
  std::function<Batch(const Json& config, std::uint64_t seed)> batch;  // made once
};

struct Entry {
  std::string name;
  std::string summary;                                // one line for `millrace list`
  config::Schema sections;                            // the recipe's own sections, from a struct whose members are sections
  Json defaults = Json::object();                     // over the shared defaults (batch size, learning rate, ...)
  std::vector<std::pair<std::string, Json>> presets;  // name -> values over the defaults; "smoke" and "small" run without data
  std::vector<config::Alias> aliases;                 // the original's keys and flags
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;  // config = resolved whole
  // True when the config names no input of its own: a preset then makes its data. Null = never.
  std::function<bool(const Json& config)> needs_data;
  // Writes sample data for a preset into `out` (an existing empty folder); same bytes for the same seed. Null = none.
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed)> make_data;
  std::vector<RecipeCommand> commands;
  std::vector<BenchShape> bench_shapes;
};

}  // namespace millrace
