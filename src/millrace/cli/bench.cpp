#include <algorithm>
#include <iostream>

#include "millrace/base/format.h"
#include "millrace/cli/bench/benches.h"
#include "millrace/cli/launch/join_ranks.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/measure/step_bench.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kBenchHelp =
    R"(RECIPE: measures what the recipe's guide promises. Short runs take turns: with every optimisation off, with the guide's advice
added piece by piece, and with everything on. Prints time, memory, the last loss, and the guide's claim.

  --preset, config files and --section.key=VALUE as in train (default: --preset smoke)
  --steps N             steps of each run (default 20)
  --rounds N            rounds of all runs (default 3)

step: times one training step (zero, forward, loss, backward, clip, update) on synthetic input made once.

  --shape NAME          cpu-small (default); for GPUs also gpu-small, which has more rows, and gpu-guide, which has the size of the
                        recipe's guide. --describe shows the contents of a shape
  --precision WORD      auto, fp32, bf16 or fp16 (default auto)
  --threads N           intra-op threads (default 2)
  --steps N             timed steps (default 9)
  --warmup N            untimed steps before the timed ones (default 3)
  --off ROW,ROW         switchboard rows to turn off
  --section.key=VALUE   overrides the shape's config: --recipe.model_dropout=0, --device.name=cuda or --device.tf32=off
  --describe            print the shape instead of timing a step: parameters, tensors of the batch, device
  --rounds stdin        repeat for each line read from stdin and print one JSON line per round, so that another program can be
                        timed in between
  --trace FILE          record three more steps with Kineto: open FILE at ui.perfetto.dev
  --json                print the whole result as JSON

loader: times the loader on a workload that a small JSON file describes, or in a recipe's run.

  FILE.json             the workload: millrace bench loader FILE.json [--step-ms 50]
  --step-ms N           consume the batches by a convolution of about N ms on the same cores; also measures the highest
                        possible rate, with replayed batches
  --quick               skip the pass that computes a digest of an epoch's bytes
  --seconds N           how long each measurement takes (default 3)
  --recipe NAME         instead of FILE: the rate of the loader in that recipe's run, the rate of its step, and which of them
                        limits the run; with --preset, config files and --section.key=VALUE as in train

ablate (or --ablate): short runs of a recipe with each switchboard row off and on, in turns. Prints time, memory, whether the
results are equal, and the guides' claims. Exit code 1 if results differ more than the row declares.

  RECIPE                with --preset, config files and --section.key=VALUE as in train
  --rows ROW,ROW        only these rows (default: all)
  --steps N             steps of each run (default 20)
  --rounds N            pairs of runs for each row (default 3)

scaling: short runs of a recipe on several ranks of this machine, with the same global batch (strong) and with the same batch for
each rank (weak). Prints the time of a step, a rank's samples per second compared with a single process, and waits for gradients.

  RECIPE                with --preset, config files and --section.key=VALUE as in train
  --ranks N,N           numbers of ranks (default 1,2); each rank gets an equal share of the cores of the largest number
  --steps N             steps of each run (default 20)
  --rounds N            runs of each kind (default 3)
)";

void print_result(const Json& result) {
  const auto text = [&](const char* key) { return result.contains(key) ? result[key].dump() : std::string("-"); };
  const auto number = [&](const char* key, int digits) {
    return result.contains(key) && result[key].is_number() ? fixed(result[key].get<double>(), digits) : std::string("-");
  };
  print("step of " + result.value("recipe", "") + " at " + result.value("shape", "") + ", " + result.value("precision", "") +
        ", " + text("threads") + " threads, " + text("steps") + " timed steps\n");
  std::vector<std::vector<std::string>> rows = {
      {"  ms p50", number("ms_p50", 2)},
      {"  ms lowest", number("ms_min", 2)},
      {"  first step, seconds after process start", number("first_step_s_since_process_start", 3)},
      {"  loss of the first and the last step", number("loss_first", 4) + " " + number("loss_last", 4)}};
  if (result.contains("peak_memory_bytes") && result["peak_memory_bytes"].is_number())
    rows.push_back({"  peak memory", human_bytes(result["peak_memory_bytes"].get<double>())});
  print(table(rows));
}

void print_description(const Entry& entry, const Json& what) {
  const auto shape = std::ranges::find(entry.bench_shapes, what["shape"].get<std::string>(), &BenchShape::name);
  std::string batch;
  for (const Json& group : what["batch"]) {
    for (const auto& [name, sizes] : group.items()) batch += (batch.empty() ? "" : ", ") + name + " " + sizes.dump();
  }
  print(entry.name + " at " + shape->name + ": " + shape->help + "\n");
  print(table({{"  parameters", with_commas(what["parameters"].get<std::int64_t>()) + ", of which " +
                                    with_commas(what["trained_parameters"].get<std::int64_t>()) + " are trained"},
               {"  batch", batch},
               {"  device", what["device"].get<std::string>() + ", " + what["device_name"].get<std::string>()}}));
}

StepBench::Options take_options(const Entry& entry, Arguments& arguments) {
  StepBench::Options options;
  options.shape = arguments.value("shape").value_or(options.shape);
  options.precision = arguments.value("precision").value_or(options.precision);
  options.threads = arguments.integer("threads", options.threads, 1);
  options.steps = arguments.integer("steps", options.steps, 1);
  options.warmup = arguments.integer("warmup", options.warmup, 0);
  options.off = take_off(arguments);
  std::vector<std::string> shapes;
  for (const auto& shape : entry.bench_shapes) shapes.push_back(shape.name);
  if (std::find(shapes.begin(), shapes.end(), options.shape) == shapes.end()) {
    arguments.problems().push_back(
        {"recipe " + entry.name + " has no bench shape " + millrace::quoted(options.shape), "flag --shape=" + options.shape,
         shapes.empty() ? "this recipe has none" : suggestion(options.shape, shapes) + "shapes: " + joined(shapes, ", ")});
  }
  if (options.precision != "auto" && options.precision != "fp32" && options.precision != "bf16" && options.precision != "fp16") {
    arguments.problems().push_back({"precision " + millrace::quoted(options.precision) + " is unknown",
                                    "flag --precision=" + options.precision, "legal words: auto, fp32, bf16, fp16"});
  }
  return options;
}

// All rounds use the same model, so only the first round has warm-up steps.
void run_rounds(const Entry& entry, const StepBench::Options& options) {
  StepBench bench(entry, options);
  std::int64_t warmup = options.warmup;
  for (std::string line; std::getline(std::cin, line) && line != "quit"; warmup = 0) {
    for (std::int64_t i = 0; i < warmup; ++i) bench.step();
    print_json_line(bench.report(bench.steps(options.steps)));
  }
}

bool is_recipe(const Invocation& call, const std::string& word) {
  return std::ranges::any_of(call.recipes, [&](const Entry& entry) { return entry.name == with_underscores(word); });
}

int run_bench(const Invocation& call) {
  Arguments arguments(call.words);
  if (arguments.flag("ablate")) return bench_ablate(call, arguments);
  const auto what = arguments.positional();
  if (what == "ablate") return bench_ablate(call, arguments);
  if (what == "scaling") return bench_scaling(call, arguments);
  if (what == "loader") return bench_loader(call, arguments);
  if (what && is_recipe(call, *what)) {
    Arguments all(call.words);
    return bench_recipe(call, all);
  }
  if (what != "step") {
    throw UsageError(
        {what ? "there is no bench " + millrace::quoted(*what)
              : call.program + " bench needs a recipe, or the word step, loader, ablate or scaling",
         call.program + " bench",
         "write " + call.program +
             " bench RECIPE, bench step RECIPE, bench loader FILE.json, bench ablate RECIPE or bench scaling RECIPE"});
  }
  const Entry& entry = take_recipe(arguments, call.recipes, "bench step");
  const bool json = arguments.flag("json");
  const bool describes = arguments.flag("describe");
  const std::string trace = arguments.value("trace").value_or("");
  const auto rounds = arguments.value("rounds");
  if (rounds && *rounds != "stdin") {
    arguments.problems().push_back(
        {"rounds come from stdin, not from " + millrace::quoted(*rounds), "flag --rounds=" + *rounds, "write --rounds=stdin"});
  }
  if (!trace.empty() && (rounds || describes)) {
    arguments.problems().push_back(
        {"no trace is recorded with --rounds or --describe", "flag --trace=" + trace, "leave one of them out"});
  }
  StepBench::Options options = take_options(entry, arguments);
  options.overrides = config_overrides(entry, arguments);
  const Joined ranks = join_ranks({});
  options.agreement = ranks.processes.get();
  keep_memory_unless_off(options.off);
  if (describes) {
    const Json description = describe_step(entry, options);
    json ? print_json(description) : print_description(entry, description);
    return 0;
  }
  if (rounds) {
    run_rounds(entry, options);
    return 0;
  }
  const Json result = bench_step(entry, options, trace);
  json ? print_json(result) : print_result(result);
  return 0;
}

}  // namespace

constinit const Command kBench = {
    .name = "bench",
    .arguments = "RECIPE|step|loader|ablate|scaling [WHAT] [options]",
    .summary = "measures a guide's promises, a training step, a loader, each row of the switchboard",
    .group = "Look at things",
    .help = kBenchHelp,
    .run = run_bench,
    .more_help = [](const Invocation&) { return bench_loader_help(); }};

}  // namespace millrace::cli
