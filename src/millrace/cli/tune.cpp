#include <algorithm>
#include <cmath>
#include <cstdio>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/shell_word.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/bench/short_runs.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/recipe_help.h"
#include "millrace/cli/shared/text.h"
#include "millrace/cli/tuned_file.h"
#include "millrace/device/device.h"
#include "millrace/doctor/tuner.h"
#include "millrace/runs/ledger.h"
#include "millrace/train/run/command_config.h"
#include "millrace/train/run/run.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kTuneHelp =
    R"(Searches for values that make a run of this config faster, by short runs of the recipe on its own data. First it tries
together all values that do not change the training and for which the doctor or the run's accounts predict a gain. Then it tries
the other values one by one, the greatest predicted gain first. Last it checks whether each value that was tried with others is
needed. A run that other programs disturbed is repeated. It writes a config with the values that help, and the gain of each. If it
is stopped, the same command resumes it.

  --out FILE            the config to write (default tuned.yaml): a new file, or one that tune wrote; the search keeps its state in
                        FILE.progress.json
  --minutes N           stop after about N minutes (default 10)
  --seconds N           how long the loop of a short run takes (default 4)
  --allow WORD,WORD     also try values that change the training: precision (bf16 for fp32), batch_size, accumulation (computes
                        the global batch in one piece, which changes batch norms)
  FILE, --config FILE, --preset, --data, --off, --section.key=VALUE   as in train
  --json                as JSON

It never changes the validation, the learning rate or other values that affect learning. Its result is valid for this machine.
)";

struct Options {
  bool json = false;
  std::filesystem::path out;
  double minutes = 10, seconds = 4;
  std::set<std::string> allowed;
};

const std::vector<std::string> kAllow = {"precision", "batch_size", "accumulation"};

constexpr std::string_view kOfATunedConfig = " times as fast";  // part of the heading of each tuned config

// True for a file at the result's path that no search wrote, such as the config that is tuned. The result would replace this
// file.
bool is_other_file(const std::filesystem::path& file) {
  if (!Fs::real().exists(file)) return false;
  try {
    return Fs::real().read_file(file).find(kOfATunedConfig) == std::string::npos;
  } catch (const FsError&) {  // `file` is a folder, or can't be read
    return true;
  }
}

Options take_options(Arguments& arguments) {
  Options options;
  options.json = arguments.flag("json");
  options.out = arguments.value("out").value_or("tuned.yaml");
  options.minutes = static_cast<double>(arguments.integer("minutes", 10, 1));
  options.seconds = static_cast<double>(arguments.integer("seconds", 4, 1));
  for (const std::string& list : arguments.values({"allow"})) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      const std::string word = with_underscores(list.substr(at, end - at));
      if (std::ranges::find(kAllow, word) == kAllow.end()) {
        arguments.problems().push_back({"--allow does not know the word " + quoted(word), "flag --allow",
                                        suggestion(word, kAllow) + "words: " + joined(kAllow, ", ")});
      }
      options.allowed.insert(word);
      at = end + 1;
    }
  }
  const std::string suffix = options.out.extension().string();
  if (suffix != ".yaml" && suffix != ".yml")
    arguments.problems().push_back({"a tuned config is YAML", "flag --out=" + options.out.string(), "let its name end in .yaml"});
  if (is_other_file(options.out))
    arguments.problems().push_back(
        {printable(options.out.string()) + " is not a config that tune wrote, and the result would replace it", "flag --out",
         "name another file, or move that file away"});
  return options;
}

std::string flag_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const bool words =
      value.is_array() && !value.empty() && std::ranges::all_of(value, [](const Json& each) { return each.is_string(); });
  return words ? joined(value, ",", [](const Json& each) { return each.get<std::string>(); }) : value.dump();
}

doctor::Settings tunable(const config::Schema& schema, const Json& values) {
  doctor::Settings settings;
  for (const std::string& key : doctor::Tuner::keys()) {
    if (schema.find(key) != nullptr) settings[key] = flag_text(values.at(config::pointer_to(key)));
  }
  return settings;
}

// Keeps the state of an unfinished search in a file next to its result.
class Progress {
 public:
  Progress(const std::filesystem::path& out, Json key) : file_(out.string() + ".progress.json"), key_(std::move(key)) {}
  // The state of an earlier search with the same words, config and machine. Null if there is no such state.
  [[nodiscard]] Json read() const {
    if (!Fs::real().exists(file_)) return {};
    const Json all = parse_shallow(Fs::real().read_file(file_));
    return all.is_object() && all.value("of", Json()) == key_ ? all.value("search", Json()) : Json();
  }
  void write(std::int64_t steps, double spent, const doctor::Tuner& tuner) const {
    const Json search = {{"steps", steps}, {"spent_s", spent}, {"state", tuner.state()}};
    write_atomically(Fs::real(), file_, Json{{"of", key_}, {"search", search}}.dump(1) + "\n");
  }
  void remove() const { Fs::real().remove_all(file_); }

 private:
  std::filesystem::path file_;
  Json key_;
};

void print_line(const Options& options, const std::string& line) {
  if (options.json) return;
  print(line + "\n");
  std::fflush(stdout);
}

std::string ms_text(double seconds) { return significant(seconds * 1e3, 3) + " ms a sample"; }

std::string shares_of(const doctor::ShortRun& run) {
  std::vector<std::pair<std::string, double>> shares(run.shares.begin(), run.shares.end());
  std::ranges::sort(shares, std::ranges::greater(), &std::pair<std::string, double>::second);
  std::string text;
  for (const auto& [account, share] : shares) {
    constexpr double kWorthSaying = 0.01;
    if (share >= kWorthSaying) text += ", " + account + " " + percent(share);
  }
  return text;
}

std::string line_of(const doctor::Trial& trial) {
  using Verdict = doctor::Trial::Verdict;
  std::string text = doctor::text_of(trial.candidate.set);
  text.resize(std::max<std::size_t>(text.size(), 30), ' ');
  text += trial.candidate.back ? "  the old value with all other new values, to see whether the new one helps: "
                               : "  expects " + percent(trial.candidate.expected) + " less time" +
                                     (trial.candidate.finding.empty() ? "" : " (" + trial.candidate.finding + ")") + ": ";
  if (trial.verdict == Verdict::not_allowed)
    return text + "not tried, because it changes the training; to try it: --allow=" + trial.candidate.needs;
  if (trial.verdict == Verdict::failed) return text + "failed: " + trial.failure;
  if (trial.verdict == Verdict::busy) return text + "not measured, because other programs use the cores";
  return text + percent(trial.gain()) + ", " + significant(trial.ratio, 3) + " times as fast" +
         (trial.runs > 1 ? " (" + significant(trial.least, 3) + " to " + significant(trial.most, 3) + ")" : "") + ": " +
         std::string(doctor::word_of(trial.verdict));
}

void write_to_ledger(const doctor::Trial& trial, const std::string& recipe) {
  if (trial.runs == 0 || trial.candidate.back) return;  // there is no prediction to record for a key's old value
  runs::write_down({.finding = trial.candidate.finding,
                    .setting = doctor::text_of(trial.candidate.set),
                    .expected = trial.candidate.expected,
                    .measured = trial.gain(),
                    .recipe = recipe,
                    .cpu = device::cpu_info().name,
                    .source = "tune",
                    .unix_time = unix_seconds()});
}

struct Search {
  const Entry* entry = nullptr;
  Options options;
  ShortRuns runs;
  doctor::Settings config;
  double spent = 0;  // seconds that earlier processes have spent on this search
  double began = steady_seconds();
  double longest_run = 0;
  [[nodiscard]] double seconds() const { return spent + steady_seconds() - began; }
};

doctor::Tuner begin(Search& search, const Json& earlier) {
  const doctor::Tuner::Options options{.allowed = search.options.allowed, .has_time = [&search] {
                                         return search.seconds() + 2 * search.longest_run <= 60 * search.options.minutes;
                                       }};
  const doctor::Runner runner = [&search](const doctor::Settings& changed) {
    const double began = steady_seconds();
    doctor::ShortRun run = make_run(search.runs, changed);
    search.longest_run = std::max(search.longest_run, steady_seconds() - began);
    return run;
  };
  if (!earlier.is_null()) {
    search.runs.steps = earlier.at("steps");
    search.spent = earlier.at("spent_s");
    return {search.config, options, runner, earlier.at("state")};
  }
  search.runs.steps = steps_for(search.runs, search.options.seconds);
  search.runs.with_trials = true;
  doctor::Tuner tuner(search.config, options, runner);
  search.runs.with_trials = false;
  return tuner;
}

void print_result(const Search& search, const doctor::Tuner& tuner, const std::string& command) {
  if (search.options.json) {
    Json result = tuner.state();
    result["recipe"] = search.entry->name;
    result["speedup"] = tuner.speedup();
    result["seconds"] = search.seconds();
    result["out_of_time"] = tuner.out_of_time();
    result["file"] = search.options.out.string();
    return print_json(result);
  }
  if (tuner.out_of_time())
    print("the time is up with " + std::to_string(tuner.candidates().size()) + " values left; --minutes gives more time\n");
  if (tuner.kept().empty()) return print("nothing that was tried makes this config faster here\n");
  print(search.options.out.string() + "  " + significant(tuner.speedup(), 3) +
        " times as fast: " + ms_text(tuner.first().seconds) + " before, " + ms_text(tuner.now().seconds) + " now; " +
        human_duration(search.seconds()) + "\n  next  " + command + "\n");
}

int run_tune(const Invocation& call) {
  Arguments arguments(call.words);
  Search search;
  search.entry = &take_recipe(arguments, call.recipes, "tune");
  search.options = take_options(arguments);
  search.runs.words = arguments.words();
  search.runs.words.insert(search.runs.words.begin(), search.entry->name);
  const CommandConfig config = resolve_command_config(*search.entry, arguments, /*fresh=*/true);
  const config::Schema schema = schema_with_defaults(*search.entry);
  search.config = tunable(schema, config.resolved.values);
  if (const std::string& rows = search.config["data.batch_size"];
      !rows.empty() && rows.find_first_not_of("0123456789") == std::string::npos)
    search.runs.rows = std::stoll(rows);
  const std::string command = call.program + " train " + search.entry->name +
                              (config.preset.empty() ? "" : " --preset " + config.preset) + " " +
                              shell_word(search.options.out.string());

  std::vector<std::string> allowed(search.options.allowed.begin(), search.options.allowed.end());
  const Progress progress(search.options.out, {{"words", search.runs.words},
                                               {"config", config.resolved.values},
                                               {"allowed", allowed},
                                               {"cpu", device::cpu_info().name},
                                               {"seconds", search.options.seconds}});
  const Json earlier = progress.read();
  const ScratchFolder scratch;
  search.runs.folder = scratch.path();
  doctor::Tuner tuner = begin(search, earlier);
  if (!tuner.first().failure.empty())
    throw UsageError({"the initial config does not run", "millrace train", tuner.first().failure});
  print_line(search.options, "runs of " + with_commas(search.runs.steps) + " steps; now " + ms_text(tuner.now().seconds) +
                                 shares_of(tuner.now()));
  if (!earlier.is_null()) {
    print_line(search.options, "resuming after " + std::to_string(tuner.trials().size()) + " trials");
    for (const doctor::Trial& trial : tuner.trials()) print_line(search.options, line_of(trial));
  }
  progress.write(search.runs.steps, search.seconds(), tuner);
  while (const auto trial = tuner.next()) {
    print_line(search.options, line_of(*trial));
    write_to_ledger(*trial, search.entry->name);
    progress.write(search.runs.steps, search.seconds(), tuner);
  }
  const std::vector<std::string> heading = {
      command,
      significant(tuner.speedup(), 3) + std::string(kOfATunedConfig) + " as the initial config (" +
          ms_text(tuner.first().seconds) + ", now " + ms_text(tuner.now().seconds) + ")",
      "measured on " + device::cpu_info().name + ", " + std::to_string(device::cpu_info().physical_cores) +
          " cores, in short runs; each value was measured together with the values above it"};
  if (!tuner.kept().empty())
    write_atomically(Fs::real(), search.options.out, tuned_file(schema, config.resolved, tuner, heading));
  if (!tuner.out_of_time()) progress.remove();
  print_result(search, tuner, command);
  return 0;
}

}  // namespace

constinit const Command kTune = {
    .name = "tune",
    .arguments =
        "RECIPE [FILE]... [--out FILE] [--minutes N] [--allow WORD,...] [--preset NAME] [--section.key=VALUE]... [--json]",
    .summary = "searches for faster settings and writes them to a config file",
    .group = "Look at things",
    .help = kTuneHelp,
    .run = run_tune,
    .more_help = recipe_help};

}  // namespace millrace::cli
