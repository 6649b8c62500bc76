// A registry row: what the command line knows about a recipe.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/config/schema_of.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/recipe/recipe.h"

namespace millrace {

struct Weights;    // train/assembly/weights.h
struct SwitchRow;  // train/recipe/switchboard.h
namespace hdf5 {
class File;
}

// A recipe's own command, such as `millrace generate`. Gets the words after the command's name; returns the exit code.
struct RecipeCommand {
  std::string name;
  std::string help;
  std::function<int(std::span<const std::string> arguments)> run;
};

// One training step on synthetic input, for `millrace bench step`.
struct BenchShape {
  std::string name;  // "cpu-small"
  std::string help;
  Json config;                                                         // values over the recipe's defaults
  std::function<Batch(const Json& config, std::uint64_t seed)> batch;  // made once
};

// A tensor that predict takes or returns.
struct PredictField {
  std::string name;
  DType dtype = DType::f32;  // inputs are converted to it: other widths of its kind (integer, real, complex), integers to real
  std::string shape;         // "[rows,2]": rows come first; a number is checked, a word stands for any size
  std::string help;          // unit and meaning
};

using DataOptions = std::map<std::string, std::string>;  // name -> value, for the given options

// A piece of the guide's advice, with the switchboard's rows that follow it and the gain that the guide promises: for `millrace
// bench RECIPE`.
struct Advice {
  std::string text;
  std::vector<std::string> rows;
  std::string claim;
};
struct Guide {
  std::vector<Advice> advice;  // in the guide's order
  std::string whole;           // the promised gain of all together
};

struct Entry {
  // The inputs and outputs of Recipe::predict(). It gets any number of rows of every input, on the run's device, without
  // gradients and under the run's autocast; every output has as many rows, and each row's result is independent of the other
  // rows.
  struct Predicts {
    std::vector<PredictField> inputs, outputs;
  };

  // A key whose value names a config file in the words of another program. The file's values rank above the preset and below the
  // config files that the command names. It is read if the key is given anew; a resumed run has the values.
  struct NamedConfig {
    std::string key;                  // "recipe.model_config"
    config::Layers::Convert convert;  // turns the file's tree into keys of this recipe
  };

  // An option of `millrace make-data` for one recipe.
  struct DataOption {
    std::string name;   // "clean"
    std::string value;  // "FOLDER"; empty: --name takes no value, and "true" is passed
    std::string help;
  };

  std::string name;
  std::string summary;                                // one line for `millrace list`
  config::Schema sections;                            // the recipe's own sections, from a struct whose members are sections
  Json defaults = Json::object();                     // values over the shared defaults (batch size, learning rate, ...)
  std::vector<std::pair<std::string, Json>> presets;  // name -> values over the defaults; "smoke" and "small" run without data
  std::vector<config::Alias> aliases;                 // the original's keys and flags
  std::vector<NamedConfig> named_configs;             // keys that name further config files
  // Converts each config file that a command names: a tree in another program's words becomes keys of ours (or of an alias), any
  // other tree is returned unchanged. Null = files use our words.
  config::Layers::Convert convert_file = nullptr;
  // Makes the recipe. `config`: the whole resolved config, as in all functions here. ConfigError for a config in which problems()
  // finds faults.
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;
  // Values of the recipe's own keys that contradict each other; reported in one list with those of all sections. Null = no
  // checks.
  std::function<std::vector<Problem>(const Json& config)> problems;
  // True if the config names no input of its own: a preset then makes its data. Null = never.
  std::function<bool(const Json& config)> needs_data;
  // Writes sample data for a preset into `out` (an existing empty folder); same bytes for the same seed. Null = no sample data.
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed)> make_data;
  // The recipe's own options of sample data, and the function that is called instead of make_data if one of them is given.
  std::vector<DataOption> data_options;
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed, const DataOptions& options)>
      make_data_with;
  // The data options that follow from a config whose preset makes the data. Null = no options.
  std::function<DataOptions(const Json& config)> data_options_of;
  // Prepares a file of weights alone, maybe another program's, before it is loaded into the model: takes out of `weights` what
  // the model computes itself, keeps the file's other contents (a vocabulary), and sets the keys of `config` that the file
  // determines. Returns what it did, a line each. ConfigError if the user set such a key to another value, DataError for a file
  // that does not fit this recipe. Null = files are used unchanged.
  std::function<std::vector<std::string>(Weights& weights, config::Resolved& config)> adopt_weights;
  // Completes weights exported to another program: adds what else that program's files hold. Returns notes for the user, a line
  // each.
  std::function<std::vector<std::string>(Tensors& weights, const Json& config)> complete_weights;
  // What an HDF5 input file says about itself, as the recipe reads it: one line. "" for a file of another kind; DataError for a
  // file that the recipe refuses. Null = no such line.
  std::function<std::string(const hdf5::File& file)> read_as;
  Predicts predicts;  // empty: the recipe gets the contents of the input file unchecked
  std::vector<RecipeCommand> commands;
  std::vector<BenchShape> bench_shapes;
  // Names of the switchboard's rows that this recipe reaches, among the rows that matter to some recipes only
  // (SwitchRow::Occasion::named); empty = it may reach all.
  std::vector<std::string> switches;
  Guide guide;
};

// True if the recipe reaches the row.
[[nodiscard]] bool reaches(const Entry& entry, const SwitchRow& row);

// Turns a function of (const Sections&, const RunConfig&, more...) into a function of the resolved config: (const Json&,
// more...).
template <class Sections, class Function>
[[nodiscard]] auto of_config(Function function) {
  return [function = std::move(function)]<class... More>(const Json& config, More&&... more) {
    return function(config::read<Sections>(config), config::read<RunConfig>(config), std::forward<More>(more)...);
  };
}

// A row for a recipe R with its own config. R is made from (const Sections&, const Context&); the static function
// R::problems(const Sections&, const RunConfig&), if R has it, becomes Entry::problems.
template <class R, class Sections>
[[nodiscard]] Entry entry_of(std::string name, std::string summary) {
  Entry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.sections = config::schema_of<Sections>();
  if constexpr (requires { &R::problems; }) entry.problems = of_config<Sections>(&R::problems);
  entry.make = [problems = entry.problems](const Json& config, const Context& context) -> std::unique_ptr<Recipe> {
    if (problems) {
      if (auto found = problems(config); !found.empty()) throw ConfigError(std::move(found));
    }
    return std::make_unique<R>(config::read<Sections>(config), context);
  };
  return entry;
}

}  // namespace millrace
