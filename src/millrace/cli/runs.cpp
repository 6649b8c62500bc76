#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/runs/run_columns.h"

namespace millrace::cli {
namespace {

constexpr std::size_t kWidth = 100;  // width of the table in characters, if the user chooses no columns

constexpr std::string_view kRunsHelp =
    R"(Lists the run folders below ./runs, newest first. A run that was "stopped", or that "died" (millrace doctor FOLDER says of what), is
resumed by millrace train RECIPE --run FOLDER. A branch (FOLDER/branches/...) can be resumed in the same way. It is the later part
of a run that resumed from an older snapshot (--train.resume=FOLDER/snapshots/...).

Columns: run, recipe, step, loss, best (of the metric that decides the best snapshot), step_ms (median), rate, findings (of the
doctor), bound_by (the account with most time), state, when. Those that fit into 100 characters are shown.

  --root DIR            another folder than ./runs
  --columns A,B,...     show these columns, in this order
  --sort KEY            sort by this column; --sort=-KEY: the greatest first
  --json                as JSON, with all columns
)";

int run_runs(const Invocation& call) {
  Arguments arguments(call.words);
  const auto named = arguments.value("root");
  const std::filesystem::path root = named.value_or("runs");
  const bool json = arguments.flag("json");
  const auto chosen = arguments.value("columns");
  const auto sort = arguments.value("sort");
  arguments.finish("runs");
  std::error_code error;
  if (named && !std::filesystem::is_directory(root, error)) {
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(root, error));
    throw UsageError({printable(root.string()) + (is_there ? " is not a folder that can be read" : " does not exist"),
                      "flag --root", "name the folder that holds the runs; without --root it is ./runs"});
  }
  std::vector<runs::RunRow> rows = runs::find_runs(root);
  std::vector<const runs::RunColumn*> columns;
  if (chosen) columns = runs::columns_named(*chosen, "--columns");
  if (sort) runs::sort_rows(rows, *sort);
  if (json) {
    Json all = Json::array();
    for (const runs::RunRow& row : rows) all.push_back(row.to_json());
    print_json(all);
    return 0;
  }
  if (rows.empty()) {
    const std::string where = printable(root.string());
    print("no runs below " + where + (runs::Run(root).is_there() ? ": it is a run itself, see millrace report " + where : "") +
          "\n");
    return 0;
  }
  if (!chosen) columns = runs::columns_within(kWidth, rows);
  print(text_of(columns, rows));
  return 0;
}

}  // namespace

constinit const Command kRuns = {.name = "runs",
                                 .arguments = "[--root DIR] [--columns A,B,...] [--sort KEY] [--json]",
                                 .summary = "runs below ./runs: step, loss, best, speed, findings, state",
                                 .group = "Look at things",
                                 .help = kRunsHelp,
                                 .run = run_runs};

}  // namespace millrace::cli
