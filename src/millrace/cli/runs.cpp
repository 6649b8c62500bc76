#include "millrace/base/format.h"
#include "millrace/cli/arguments.h"
#include "millrace/cli/command.h"
#include "millrace/cli/run_table.h"
#include "millrace/cli/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kRunsHelp =
    R"(Lists the run folders below ./runs, newest first. A run that is "stopped" goes on with
millrace train RECIPE --run FOLDER and the options it was started with.

  --root DIR            another folder than ./runs
  --json                as JSON
)";

int run_runs(const Invocation& call) {
  Arguments arguments(call.words);
  const std::filesystem::path root = arguments.value("root").value_or("runs");
  const bool json = arguments.flag("json");
  arguments.finish("runs");
  std::vector<std::vector<std::string>> rows = {{"run", "recipe", "step", "loss", "state", "when"}};
  Json all = Json::array();
  for (const RunRow& row : find_runs(root)) {
    rows.push_back(
        {row.folder.string(), row.recipe, with_commas(row.step), row.loss ? fixed(*row.loss, 4) : "-", row.state, row.when});
    all.push_back(row.to_json());
  }
  if (json) {
    print_json(all);
  } else {
    print(rows.size() == 1 ? "no runs below " + root.string() + "\n" : table(rows));
  }
  return 0;
}

}  // namespace

constinit const Command kRuns = {.name = "runs",
                                 .arguments = "[--root DIR] [--json]",
                                 .summary = "runs below ./runs: recipe, step, loss, state, when",
                                 .group = "Look at things",
                                 .help = kRunsHelp,
                                 .run = run_runs};

}  // namespace millrace::cli
