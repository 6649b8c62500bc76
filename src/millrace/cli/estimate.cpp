#include "millrace/base/format.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/take_run.h"
#include "millrace/cli/shared/text.h"
#include "millrace/measure/memory_search.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kEstimateHelp =
    R"(Measures the memory of a run's step, and what recomputing each block of the model would save and cost. It makes a step
twice on the run's own data. With --memory.budget, it also prints what that budget would recompute. It writes no run folder.

  FILE, --config FILE, --preset, --data, --off, --section.key=VALUE   as in train
  --json                as JSON
)";

std::string bytes(const Json& result, const char* key) { return human_bytes(result.at(key).get<double>()); }

void print_estimate(const Json& result) {
  print("a step of " + result["recipe"].get<std::string>() + ", batch " + result["batch_size"].dump() +
        (result["micro_batches"] == 1 ? "" : " in " + result["micro_batches"].dump() + " micro-batches") + ", " +
        result["precision"].get<std::string>() + "\n");
  std::vector<std::vector<std::string>> rows = {
      {"  parameters, gradients, optimiser",
       bytes(result, "parameters_bytes") + ", " + bytes(result, "gradients_bytes") + ", " + bytes(result, "optimizer_bytes")},
      {"  peak, nothing recomputed",
       bytes(result, "plain_bytes") + (result["plain_measured"].get<bool>() ? "" : " (it does not fit: calculated)")},
      {"  peak, every block recomputed", bytes(result, "recomputed_bytes")},
      {"  free", bytes(result, "available_bytes")}};
  if (result.contains("budget_bytes")) {
    rows.push_back(
        {"  budget", bytes(result, "budget_bytes") + (result["fits"].get<bool>() ? "" : ": recompute alone can't meet it")});
    rows.push_back({"  recomputed for it", joined(result["recompute"].get<std::vector<std::string>>(), ", ")});
    rows.push_back({"  its cost, ms per step", fixed(result["extra_ms"].get<double>(), 1)});
  }
  const auto where = result["peak_in"].get<std::string>();
  rows.push_back({"  predicted peak of the run", bytes(result, "predicted_bytes") + (where.empty() ? "" : ", " + where)});
  if (result.contains("micro_batches_that_fit")) {
    rows.push_back({"  within the budget",
                    bytes(result, "bytes_that_fit") +
                        " with every block recomputed and --memory.micro_batches=" + result["micro_batches_that_fit"].dump()});
  }
  for (const Json& one : result["lighter"])
    rows.push_back({"  with --" + one["setting"].get<std::string>(), bytes(one, "bytes") + ", nothing recomputed"});
  print(table(rows));
  const Json& account = result["account"];
  print("  the whole run: " + bytes(account, "sum") + ", of which libraries " + bytes(account, "libraries") + ", scratch " +
        bytes(account, "scratch") + ", loader " + bytes(account, "loader") + ", cache " + bytes(account, "cache") +
        ", writing a snapshot " + bytes(account, "snapshot") + "\n");
  if (result["blocks"].empty()) {
    print("the recipe names no blocks: nothing can be recomputed\n");
    return;
  }
  rows = {{"  block", "saves", "costs ms"}};
  for (const Json& block : result["blocks"])
    rows.push_back({"  " + block["name"].get<std::string>(), bytes(block, "saved_bytes"), fixed(block["ms"].get<double>(), 2)});
  print(table(rows));
}

int run_estimate(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe(arguments, call.recipes, "estimate");
  const bool json = arguments.flag("json");
  telemetry::Console console(telemetry::Console::Mode::quiet, json ? 2 : 1);
  const Json result = estimate_memory(take_run(entry, arguments, console));
  json ? print_json(result) : print_estimate(result);
  return 0;
}

}  // namespace

constinit const Command kEstimate = {.name = "estimate",
                                     .arguments = "RECIPE [FILE]... [--preset NAME] [--section.key=VALUE]... [--json]",
                                     .summary = "the memory a run will need, and what recompute would save",
                                     .group = "Look at things",
                                     .help = kEstimateHelp,
                                     .run = run_estimate,
                                     .more_help = recipe_help};

}  // namespace millrace::cli
