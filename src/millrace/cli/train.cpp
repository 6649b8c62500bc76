#include <unistd.h>

#include <algorithm>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/cli/launch/join_ranks.h"
#include "millrace/cli/launch/rank_watch.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/batch_size.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/text.h"
#include "millrace/device/device.h"
#include "millrace/runs/ledger.h"
#include "millrace/runs/report_page.h"
#include "millrace/system/signals.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kTrainHelp =
    R"(Trains a recipe. With --run DIR of a run it resumes from DIR's newest valid snapshot, with the values that the run
had; command line, files, environment and preset override them. Without --run each run gets its own folder,
runs/<recipe>/<date-time>. SIGINT, SIGTERM, SIGHUP and SIGUSR1 finish the step, save and leave; before the first step
they end the program within ten seconds, and the same command starts again.

  FILE, --config FILE   config file: .json (comments allowed), .toml, .yaml; may be given several times, later files win
  --preset NAME         values of a preset, which files override; without input data the preset makes its own
  --run DIR             run folder: new, or to resume
  --data DIR            folder of the input data
  --section.key=VALUE   one value; hyphen and underscore are alike, --x and --no-x set a true|false key
  --off ROW,ROW         switchboard rows to turn off (millrace list --switches)
  --fresh               start over in a folder that holds a run, with this command line's values alone; the old run is
                        removed when the new one has saved
  --dry-run             print the resolved config and the plan, and stop
  --rehearse            take one batch of each split through the recipe, print what came out, and stop; every new run does so
                        before its first step
  --verbose             list the known faults that are worked around, which the plan only counts; say what the rehearsal
                        does not check, and how the check of the first snapshot went
  --strict              exit code 4 when the run ends and one of its targets.* is missed, or was not measured
  --json                print summary.json on stdout when done; everything else goes to stderr

Precedence: flag > environment (MILLRACE_OPTIM__LEARNING_RATE=1e-3) > files in order > preset > the run in --run DIR > the
recipe's defaults. A path in a file is searched next to that file, then in the current folder.
)";

// Writes the report. If that fails, only warns, because the run itself has finished.
void leave_report(const std::filesystem::path& run, telemetry::Console& console) {
  try {
    console.line("report " + runs::write_report(run).string());
  } catch (const std::exception& error) {
    console.warning("report.html could not be written: " + std::string(error.what()));
  }
}

// If this run followed the doctor's advice for an earlier run in the same parent folder, logs the measured gain.
void note_remedy(const std::filesystem::path& run, telemetry::Console& console) {
  std::optional<runs::LedgerLine> line = runs::followed_remedy(run);
  if (!line) return;
  line->cpu = device::cpu_info().name;
  runs::write_down(*line);
  console.line("doctor " + line->setting + " gained " + percent(line->measured) + " of the time; " + percent(line->expected) +
               " was expected (" + line->finding + ")");
}

bool misses_a_target(const Json& summary) {
  return std::ranges::any_of(summary.value("targets", Json::array()), [](const Json& target) { return !target.at("met"); });
}

// Chooses the batch size on rank 0, for all ranks.
void agree_on_batch_size(RunRequest& request, Agreement* agreement) {
  Agreement& ranks = agreement == nullptr ? Agreement::of_one() : *agreement;
  if (ranks.ranks().rank == 0) choose_batch_size(request);
  Json& size = request.config.values["data"]["batch_size"];
  size = ranks.from_root(size);
}

// Trains with all ranks. Also throws Stopped if another rank obeyed the same signal first.
RunOutcome train_together(RunRequest request, distributed::Processes* ranks) {
  try {
    if (request.dry_run != DryRun::plan) agree_on_batch_size(request, ranks);
    request.agreement = ranks;
    return run_training(std::move(request));
  } catch (const DistributedError&) {
    stop_if_signalled();
    throw;
  }
}

int run_train(const Invocation& call) {
  Arguments arguments(call.words);
  const Entry& entry = take_recipe(arguments, call.recipes, "train");
  const bool json = arguments.flag("json"), strict = arguments.flag("strict");
  RunRequest request;
  request.entry = &entry;
  request.fresh = arguments.flag("fresh");
  request.verbose = arguments.flag("verbose");
  const bool rehearses = arguments.flag("rehearse");
  if (arguments.flag("dry-run")) request.dry_run = DryRun::plan;
  if (rehearses) request.dry_run = DryRun::rehearsal;
  const bool trains = request.dry_run == DryRun::no;
  CommandConfig config = resolve_command_config(entry, arguments, request.fresh);
  keep_memory_unless_off(config.resolved);
  using Mode = telemetry::Console::Mode;
  const bool tells = !trains || !is_other_rank();
  telemetry::Console console(tells ? Mode::automatic : Mode::quiet, json ? 2 : 1);
  if (request.dry_run == DryRun::plan) console.line(config_table(schema_of(entry), config.resolved));
  request.config = std::move(config.resolved);
  request.preset = std::move(config.preset);
  request.command_line = {call.program, "train"};
  request.command_line.insert(request.command_line.end(), call.words.begin(), call.words.end());
  request.console = &console;
  std::optional<BeforeFirstStep> start;
  if (trains) {
    install_signal_handlers();
    start.emplace(tells ? (json ? STDERR_FILENO : STDOUT_FILENO) : -1);
  }
  Joined ranks;
  if (trains) ranks = join_ranks(config::read<RunConfig>(request.config.values).distributed);
  if (trains) request.folder_begun = [&](const std::filesystem::path& folder) { ranks.status->run_folder(folder.string()); };
  RunOutcome outcome;
  try {
    outcome = train_together(request, ranks.processes.get());
  } catch (const Stopped& stopped) {
    console.line(stopped_text(stopped.signal));
    ranks.status->done();
    return exit_code_for(stopped.signal);
  }
  if (trains && !outcome.run_folder.empty()) {
    note_remedy(outcome.run_folder, console);
    leave_report(outcome.run_folder, console);
  }
  if (!trains && console.has_failed()) throw output_error();
  trains ? ranks.status->done() : end_without_joining();
  if (json && trains && tells) print_json(outcome.summary);
  return strict && outcome.exit_code == 0 && misses_a_target(outcome.summary) ? kTargetsMissed : outcome.exit_code;
}

}  // namespace

constinit const Command kTrain = {
    .name = "train",
    .arguments = "RECIPE [FILE]... [--preset NAME] [--run DIR] [--data DIR] [--section.key=VALUE]... [options]",
    .summary = "train a recipe, or resume an interrupted run",
    .group = "Train and use a model",
    .help = kTrainHelp,
    .run = run_train,
    .more_help = recipe_help};

}  // namespace millrace::cli
