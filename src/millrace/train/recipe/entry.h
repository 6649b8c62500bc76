// A row of the recipe registry: everything that the command line knows about a recipe.
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

// A command that belongs to a recipe, such as `millrace generate`. Its function gets the words after the command's name and
// returns the exit code.
struct RecipeCommand {
  std::string name;
  std::string help;
  std::function<int(std::span<const std::string> arguments)> run;
};

// A training step on synthetic input, for `millrace bench step`.
struct BenchShape {
  std::string name;  // "cpu-small"
  std::string help;
  Json config;                                                         // values that replace the recipe's defaults
  std::function<Batch(const Json& config, std::uint64_t seed)> batch;  // makes the batch; called once
};

// A tensor that Recipe::predict() takes or returns.
struct PredictField {
  std::string name;
  DType dtype = DType::f32;  // type of the field; an input of the same kind (integer, real, complex) but another width is
                             // converted, and so are integers for a real field
  std::string shape;         // "[rows,2]": rows are the first axis; a number is checked, a word stands for any size
  std::string help;          // unit and meaning
};

using DataOptions = std::map<std::string, std::string>;  // option name -> value, for the options that the user gave

// A piece of advice from the guide that the recipe follows, with the switchboard's rows that implement it and the gain that the
// guide promises. `millrace bench RECIPE` measures it.
struct Advice {
  std::string text;
  std::vector<std::string> rows;
  std::string claim;
};
struct Guide {
  std::vector<Advice> advice;  // in the guide's order
  std::string whole;           // the gain that the guide promises for all its advice together
};

struct Entry {
  // The inputs and outputs of Recipe::predict(). The function gets any number of rows of every input, on the run's device,
  // without gradients and under the run's autocast. Every output has as many rows as the inputs. Each row's result must not
  // depend on the other rows.
  struct Predicts {
    std::vector<PredictField> inputs, outputs;
  };

  // A config key whose value names a config file that is written in another program's words. The file's values rank above the
  // preset and below the config files that the command names. The file is read when the user gives the key; a resumed run takes
  // the values from its own config instead.
  struct NamedConfig {
    std::string key;                  // "recipe.model_config"
    config::Layers::Convert convert;  // turns the file's tree into keys of this recipe
  };

  // An option of `millrace make-data` for one recipe.
  struct DataOption {
    std::string name;   // "clean"
    std::string value;  // "FOLDER", the value's name in the help; empty: the option takes no value, and "true" is passed
    std::string help;
  };

  std::string name;
  std::string summary;             // one line for `millrace list`
  config::Schema sections;         // the config sections that only this recipe has, made from a struct whose members are sections
  Json defaults = Json::object();  // values that replace the shared defaults (batch size, learning rate, ...)
  std::vector<std::pair<std::string, Json>> presets;  // name -> values that replace defaults; "smoke" and "small" need no data
  std::vector<config::Alias> aliases;                 // keys and flags of the original program
  std::vector<NamedConfig> named_configs;             // keys whose values name further config files
  // Converts each config file that a command names. A file in another program's words becomes a tree of our keys or aliases; any
  // other file is returned unchanged. Null = all files use our words.
  config::Layers::Convert convert_file = nullptr;
  // Makes the recipe. `config` is the whole resolved config, here and in all functions below. Throws ConfigError for a config in
  // which problems() finds faults.
  std::function<std::unique_ptr<Recipe>(const Json& config, const Context& context)> make;
  // Finds values of the recipe's own keys that contradict each other. They are reported in one list with the problems of all
  // other sections. Null = no checks.
  std::function<std::vector<Problem>(const Json& config)> problems;
  // True if the config names no input files. A run with a preset then makes sample data. Null = never.
  std::function<bool(const Json& config)> needs_data;
  // Writes sample data for a preset into `out`, an existing empty folder. The same seed gives the same bytes. Null = the recipe
  // has no sample data.
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed)> make_data;
  // The options of `millrace make-data` that only this recipe has, and the function that is called instead of make_data if the
  // user gives at least one of them.
  std::vector<DataOption> data_options;
  std::function<void(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed, const DataOptions& options)>
      make_data_with;
  // The data options with which a run makes its sample data if its config names no input. Null = no options.
  std::function<DataOptions(const Json& config)> data_options_of;
  // Prepares the weights of a file before they are loaded into the model, if the file was not written by a run (it may be
  // another program's). Removes from `weights` the tensors that the model computes itself, and keeps the file's other contents
  // (such as a vocabulary). Sets the keys of `config` that the file determines. Returns a line for each thing that was done.
  // Throws ConfigError if the user set such a key to another value, and DataError if the file does not fit this recipe. Null =
  // files are used unchanged.
  std::function<std::vector<std::string>(Weights& weights, config::Resolved& config)> adopt_weights;
  // Completes weights that are exported to another program: adds the further tensors that files of that program hold. Returns
  // notes for the user, a line each.
  std::function<std::vector<std::string>(Tensors& weights, const Json& config)> complete_weights;
  // Describes in one line how the recipe reads an HDF5 input file. Returns "" for a file of another kind. Throws DataError for a
  // file that the recipe refuses. Null = no such line.
  std::function<std::string(const hdf5::File& file)> read_as;
  Predicts predicts;  // empty: predict() gets the contents of the input file unchecked
  std::vector<RecipeCommand> commands;
  std::vector<BenchShape> bench_shapes;
  // Names of the switchboard's rows that this recipe uses, among the rows with SwitchRow::Occasion::named; all other rows matter
  // to every recipe. Empty = the recipe may use all rows.
  std::vector<std::string> switches;
  Guide guide;
};

// True if the recipe can use the switchboard's row.
[[nodiscard]] bool reaches(const Entry& entry, const SwitchRow& row);

// Turns a function of (const Sections&, const RunConfig&, more...) into a function of (const Json&, more...), which reads both
// structs from the resolved config.
template <class Sections, class Function>
[[nodiscard]] auto of_config(Function function) {
  return [function = std::move(function)]<class... More>(const Json& config, More&&... more) {
    return function(config::read<Sections>(config), config::read<RunConfig>(config), std::forward<More>(more)...);
  };
}

// A registry row for a recipe R whose config sections are the members of Sections. R is constructed from (const Sections&, const
// Context&). If R has the static function R::problems(const Sections&, const RunConfig&), that function becomes Entry::problems.
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
