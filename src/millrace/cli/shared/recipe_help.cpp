#include "millrace/cli/shared/recipe_help.h"

#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/text.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

std::string presets_of(const Entry& entry) {
  if (entry.presets.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [name, values] : entry.presets) names.push_back(name);
  return "\nPresets: " + joined(names, ", ") + "\n";
}

std::string aliases_text(const Entry& entry) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& alias : aliases_of(entry)) rows.push_back({"  " + alias.name, alias.path, alias.note});
  return rows.empty() ? "" : "\nOther names that are accepted, in files and as flags\n" + table(rows);
}

}  // namespace

std::string recipe_help(const Invocation& call) {
  Arguments arguments(call.words);
  for (const auto& word : call.words) {
    if (word == "-h" || word == "--help") continue;
    if (!word.starts_with("-")) {
      const Entry& entry = take_recipe(arguments, call.recipes, "train");
      return "\n" + entry.name + ": " + entry.summary + "\n" + presets_of(entry) +
             "\nKeys, in files and as --section.key=value\n\n" + config::help_text(schema_with_defaults(entry)) +
             aliases_text(entry);
    }
  }
  return "\nRecipes: " + joined(names_of(call.recipes), ", ") + "\nmillrace train RECIPE --help lists every key of a recipe.\n";
}

}  // namespace millrace::cli
