#include "millrace/base/format.h"
#include "millrace/cli/arguments.h"
#include "millrace/cli/command.h"
#include "millrace/cli/run_table.h"
#include "millrace/cli/text.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kRunsHelp =
    R"(Lists the run folders below ./runs, newest first. A run that is "stopped" goes on with
millrace train RECIPE --run FOLDER; so does a branch (FOLDER/branches/...), which is what a run left behind when it went on from an
older snapshot (--train.resume=FOLDER/snapshots/...).

  --root DIR            another folder than ./runs
  --json                as JSON
)";

int run_runs(const Invocation& call) {
  Arguments arguments(call.words);
  const auto named = arguments.value("root");
  const std::filesystem::path root = named.value_or("runs");
  const bool json = arguments.flag("json");
  arguments.finish("runs");
  std::error_code error;
  if (named && !std::filesystem::is_directory(root, error)) {
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(root, error));
    throw UsageError({printable(root.string()) + (is_there ? " is no folder that can be looked into" : " does not exist"),
                      "flag --root", "name the folder that holds the runs; without --root it is ./runs"});
  }
  std::vector<std::vector<std::string>> rows = {{"run", "recipe", "step", "loss", "state", "when"}};
  Json all = Json::array();
  for (const RunRow& row : find_runs(root)) {
    rows.push_back({printable(row.folder.string()), printable(row.recipe), with_commas(row.step),
                    row.loss ? fixed(*row.loss, 4) : "-", printable(row.state), row.when});
    all.push_back(row.to_json());
  }
  if (json)
    print_json(all);
  else
    print(rows.size() == 1 ? "no runs below " + printable(root.string()) + "\n" : table(rows));
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
