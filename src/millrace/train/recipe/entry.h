// A registry row: what the command line knows of a recipe.
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

// A tensor that predict takes or gives.
struct PredictField {
  std::string name;
  DType dtype = DType::f32;  // input of another width of its kind (integer, real, complex), and integers for real, become this
  std::string shape;         // "[rows,2]": first the rows; a number is checked, a word stands for any size
  std::string help;          // unit and meaning
};

// What Recipe::predict() takes and gives. It gets any number of rows of every input, on the run's device, without gradients and
// under the run's autocast; every output has as many rows, and none depends on which rows came with it.
struct Predicts {
  std::vector<PredictField> inputs, outputs;
};

// A key whose value names a file that is a config itself, in the words of another program. Its values stand above the preset and
// below the config files that the command names. Read where the key is named anew; a run that goes on has the values.
struct NamedConfig {
  std::string key;                  // "recipe.model_config"
  config::Layers::Convert convert;  // from the file's tree to keys of this recipe
};

// An option that `millrace make-data` has for one recipe.
struct DataOption {
  std::string name;   // "clean"
  std::string value;  // "FOLDER"; empty: --name takes no value, and is told as "true"
  std::string help;
};
using DataOptions = std::map<std::string, std::string>;  // name -> value, of those that were given

// What the guide to a recipe's kind of training advises, for `millrace bench RECIPE`: the rows of the switchboard that follow an
// advice, and what the guide says that they gain.
struct Advice {
  std::string text;
  std::vector<std::string> rows;
  std::string claim;
};
struct Guide {
  std::vector<Advice> advice;  // in the guide's order
  std::string whole;           // what it promises of all together
};

struct Entry {
  std::string name;
  std::string summary;                                // one line for `millrace list`
  config::Schema sections;                            // the recipe's own sections, from a struct whose members are sections
  Json defaults = Json::object();                     // over the shared defaults (batch size, learning rate, ...)
  std::vector<std::pair<std::string, Json>> presets;  // name -> values over the defaults; "smoke" and "small" run without data
  std::vector<config::Alias> aliases;                 // the original's keys and flags
  std::vector<NamedConfig> named_configs;             // keys that name further config files
  // Of each config file that a command names: keys of ours (or of an alias) of a tree that is in another program's words, any
  // other tree as it is. Null = files are in our words.
  config::Layers::Convert convert_file = nullptr;
  // `config`: the whole resolved config, in all functions here. ConfigError for one that problems() finds fault with.
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;
  // Values of the recipe's own keys that do not fit each other; told with those of all sections, in one list. Null = none.
  std::function<std::vector<Problem>(const Json& config)> problems;
  // True when the config names no input of its own: a preset then makes its data. Null = never.
  std::function<bool(const Json& config)> needs_data;
  // Writes sample data for a preset into `out` (an existing empty folder); same bytes for the same seed. Null = none.
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed)> make_data;
  // The same with options of the recipe's own, when one of them is given.
  std::vector<DataOption> data_options;
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed, const DataOptions& options)>
      make_data_with;
  // Of those options what a config gives to the data that its preset makes. Null = none.
  std::function<DataOptions(const Json& config)> data_options_of;
  // Of a file of weights alone, which may be another program's, before it goes into the model: takes out of `weights` what the
  // model computes itself, keeps what the file tells besides (a vocabulary), and sets keys of `config` that the file decides.
  // Returns what it did, a line each. ConfigError where a key that somebody set says otherwise, DataError for a file that is
  // none of this recipe. Null = files are taken as they are.
  std::function<std::vector<std::string>(Weights& weights, config::Resolved& config)> adopt_weights;
  // Of weights that leave for another program: adds what its files hold besides. Returns what a user should know, a line each.
  std::function<std::vector<std::string>(Tensors& weights, const Json& config)> complete_weights;
  // What an HDF5 file of its input says of itself, as the recipe reads it: one line. "" for any other file; DataError for one
  // that it refuses. Null = none.
  std::function<std::string(const hdf5::File& file)> read_as;
  Predicts predicts;  // empty: the recipe gets what the file of input holds, unchecked
  std::vector<RecipeCommand> commands;
  std::vector<BenchShape> bench_shapes;
  // Of the rows that have work in some recipes alone (Occasion::named) those that this recipe reaches; empty = it may reach all.
  std::vector<std::string> switches;
  Guide guide;
};

// Whether the row has something to do in the recipe.
[[nodiscard]] bool reaches(const Entry& entry, const SwitchRow& row);

// A function of (const Sections&, const RunConfig&, more...) as a function of the resolved config: (const Json&, more...).
template <class Sections, class Function>
[[nodiscard]] auto of_config(Function function) {
  return [function = std::move(function)]<class... More>(const Json& config, More&&... more) {
    return function(config::read<Sections>(config), config::read<RunConfig>(config), std::forward<More>(more)...);
  };
}

// A row for a recipe R with a config of its own. R is made from (const Sections&, const Context&); a static function
// R::problems(const Sections&, const RunConfig&), where R has one, becomes Entry::problems.
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
