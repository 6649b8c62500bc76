#include <algorithm>
#include <array>
#include <cstdio>

#include "millrace/base/format.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/take_run.h"
#include "millrace/cli/shared/text.h"
#include "millrace/measure/memory_search.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kMaxBatchHelp =
    R"(Finds the largest data.batch_size that runs. With each size it makes a whole step with its update, a batch of validation and a
second step, on the run's own data. On a CPU, memory.limit limits the memory (auto = nine tenths of the free memory). It writes
no run folder.

  --from N              the first size (default 1); the size doubles until one fails; then the gap is halved
  --most N              the largest size to try (default: the size of the training set)
  FILE, --config FILE, --preset, --data, --off, --section.key=VALUE   as in train
  --json                as JSON
)";

std::string why(const std::string& bound) {
  if (bound == "data") return "the batch is the whole training set";
  if (bound == "most") return "larger ones were not asked for";
  return bound == "config" ? "a larger one is refused" : "a larger one runs out of memory";
}

constexpr std::array<std::size_t, 4> kWidths = {12, 9, 11, 17};

std::string right(const std::string& text, std::size_t column) {
  return std::string(kWidths[column] - std::min(kWidths[column], text.size()), ' ') + text;
}

// Prints a line as soon as a size was tried, because each trial takes seconds to minutes.
void print_tried(const Json& one) {
  std::string line = right(one["batch_size"].dump(), 0);
  if (one["fits"].get<bool>()) {
    line += right(fixed(one["step_ms"].get<double>(), 1), 1) + right(fixed(one["samples_per_s"].get<double>(), 1), 2) +
            right(human_bytes(one["peak_bytes"].get<double>()), 3);
  } else {
    line += "  " + one["reason"].get<std::string>();
  }
  print(line + "\n");
  std::fflush(stdout);
}

void print_found(const Json& result) {
  const auto size = result["batch_size"].get<std::int64_t>();
  if (size == 0) {
    print("not even the first size fits: start lower with --from, or see millrace estimate\n");
    return;
  }
  print("data.batch_size=" + std::to_string(size) + ": " + why(result["bound"].get<std::string>()) + "\n");
}

int run_max_batch(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe(arguments, call.recipes, "max-batch");
  const bool json = arguments.flag("json");
  MaxBatchOptions options;
  options.from = arguments.integer("from", options.from, 1);
  options.most = arguments.integer("most", options.most, 0);
  if (options.most > 0 && options.from > options.most)
    arguments.problems().push_back({"--from " + std::to_string(options.from) + " is above --most " + std::to_string(options.most),
                                    "flags --from and --most", "lower --from, or raise --most"});
  telemetry::Console console(telemetry::Console::Mode::quiet, json ? 2 : 1);
  const RunRequest request = take_run(entry, arguments, console);
  if (!json) {
    print(right("batch size", 0) + right("step ms", 1) + right("samples/s", 2) + right("peak of tensors", 3) + "\n");
    options.report = print_tried;
  }
  const Json result = find_max_batch(request, options);
  json ? print_json(result) : print_found(result);
  return result["batch_size"].get<std::int64_t>() == 0 ? 1 : 0;
}

}  // namespace

constinit const Command kMaxBatch = {
    .name = "max-batch",
    .arguments = "RECIPE [FILE]... [--from N] [--most N] [--preset NAME] [--section.key=VALUE]... [--json]",
    .summary = "the largest batch size that runs here",
    .group = "Look at things",
    .help = kMaxBatchHelp,
    .run = run_max_batch,
    .more_help = recipe_help};

}  // namespace millrace::cli
