#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/train/recipe/switchboard.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kListHelp =
    R"(Lists the recipes of this program with their presets.

  --switches            list the switchboard instead: every optimisation, what runs if it is off (--off=NAME), and how equal the
                        results with and without it are: to the bit, within a tolerance, or in distribution
  --json                as JSON
)";

std::string_view word_of(Equality equality) {
  return equality == Equality::bits ? "bits" : equality == Equality::tolerance ? "tolerance" : "statistical";
}

std::string equality_text(const SwitchRow& row) {
  return row.equality == Equality::tolerance ? "within " + significant(row.tolerance, 2) : std::string(word_of(row.equality));
}

void list_switches(bool json) {
  std::vector<std::vector<std::string>> rows = {{"switch", "on = off", "what it does, and what runs when it is off"}};
  Json all = Json::array();
  for (const SwitchRow& row : switch_rows()) {
    rows.push_back({std::string(row.name), equality_text(row), std::string(row.help)});
    rows.push_back({"", "", "  off: " + std::string(row.plain_path)});
    all.push_back({{"name", row.name},
                   {"help", row.help},
                   {"plain_path", row.plain_path},
                   {"equality", word_of(row.equality)},
                   {"tolerance", row.tolerance},
                   {"per_process", row.per_process}});
  }
  json ? print_json(all) : print(table(rows));
}

void list_recipes(const Invocation& call, bool json) {
  std::vector<std::vector<std::string>> rows = {{"recipe", "what it is"}};
  Json all = Json::array();
  for (const Entry& entry : call.recipes) {
    std::vector<std::string> presets;
    for (const auto& [name, values] : entry.presets) presets.push_back(name);
    std::vector<std::string> shapes;
    for (const auto& shape : entry.bench_shapes) shapes.push_back(shape.name);
    rows.push_back({entry.name, entry.summary});
    if (!presets.empty()) rows.push_back({"", "  presets: " + joined(presets, ", ")});
    all.push_back({{"name", entry.name}, {"summary", entry.summary}, {"presets", presets}, {"bench_shapes", shapes}});
  }
  json ? print_json(all) : print(table(rows));
}

int run_list(const Invocation& call) {
  Arguments arguments(call.words);
  const bool json = arguments.flag("json");
  const bool switches = arguments.flag("switches");
  arguments.finish("list");
  switches ? list_switches(json) : list_recipes(call, json);
  return 0;
}

}  // namespace

constinit const Command kList = {.name = "list",
                                 .arguments = "[--switches] [--json]",
                                 .summary = "recipes and their presets; --switches: every optimisation",
                                 .group = "Look at things",
                                 .help = kListHelp,
                                 .run = run_list};

}  // namespace millrace::cli
