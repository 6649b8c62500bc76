#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/shell_word.h"
#include "millrace/cli/launch/core_slices.h"
#include "millrace/cli/launch/rank_watch.h"
#include "millrace/cli/launch/slurm_file.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/command.h"
#include "millrace/cli/shared/text.h"
#include "millrace/distributed/meeting_point.h"
#include "millrace/system/signals.h"
#include "millrace/telemetry/run_log.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kLaunchHelp =
    R"(Trains with several processes, the ranks of one run. Each rank computes its slice of every global batch; together they make
the same step as a single process would. The words after the options are the command of each rank.

  --nproc N             ranks on this machine; they share its cores and readers
  --nodes M             machines; the same command runs on each, with its own --rank            (1)
  --rank R              number of this machine, from 0                                           (0)
  --at HOST:PORT        where the ranks of several machines meet: an address of machine 0
  --max-restarts K      restart all ranks after a failure, at most K times, from the last snapshot          (0)
  --hang-limit S        seconds without progress after which a rank is ended; 0 = never          (300)
  --bind cores|none     whether each rank gets its own cores                                     (cores)
  --logs DIR            folder for the output of each rank                                       (runs/launch/<date-time>)
  --slurm FILE          start nothing, but write a batch file for sbatch: the job saves before its time is up, is queued again, and
                        continues in the same run folder
  --sbatch=OPTION       an option of sbatch for that file, such as --sbatch=--time=8:00:00; once for each option

If a rank fails, the others are ended within two seconds, and the last line names the rank that failed first, its step and what it
was doing. Signals are passed on to the ranks, which finish their step and save. On a single machine, the ranks listen on the
loopback only. data.batch_size is per rank.

  millrace launch --nproc 2 train RECIPE --preset smoke
  millrace launch --nproc 4 --nodes 2 --rank 0 --at node-a:29500 train RECIPE --config run.toml
  millrace launch --slurm job.sbatch --sbatch=--time=8:00:00 --nproc 4 --nodes 2 train RECIPE --config run.toml

The ranks understand torchrun, srun and mpirun as well: torchrun --no-python --nproc-per-node 2 millrace train RECIPE.
)";

struct Options {
  int nproc = 0, nodes = 1, node = 0, restarts = 0;
  double hang_limit_s = 300;
  bool binds = true;
  std::string at, logs, slurm;
  std::vector<std::string> sbatch;
  std::vector<std::string> given;  // the options, as the user wrote them, that a Slurm batch file passes on to its launchers
  std::vector<std::string> words;
};

// A larger number is taken for a typing error. Otherwise the memory for that many ranks would be allocated before the first rank
// starts.
constexpr int kMostRanksOfAMachine = 4096, kMostMachines = 1 << 18;

int number(const std::string& name, const std::string& text, int least, int most = std::numeric_limits<int>::max()) {
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw UsageError(
        {"--" + name + " is \"" + text + "\", not a number from " + std::to_string(least) + " to " + std::to_string(most),
         "command line", "see millrace launch --help"});
  return value;
}

Options options_of(const std::vector<std::string>& words) {
  Options options;
  std::size_t i = 0;
  for (; i < words.size() && words[i].starts_with("-") && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    const std::size_t begin = std::min(word.find_first_not_of('-'), word.size()), equals = std::min(word.find('='), word.size());
    std::string name = word.substr(begin, equals - begin);
    std::ranges::replace(name, '_', '-');
    std::string value;
    if (equals < word.size())
      value = word.substr(equals + 1);
    else if (i + 1 < words.size())
      value = words[++i];
    if (value.empty())  // for example --slurm=$FILE with an unset variable; without this check the ranks would start
      throw UsageError({word + " needs a value", "command line", "see millrace launch --help"});
    if (name == "nproc" || name == "nproc-per-node") {
      options.nproc = number(name, value, 1, kMostRanksOfAMachine);
    } else if (name == "nodes" || name == "nnodes") {
      options.nodes = number(name, value, 1, kMostMachines);
    } else if (name == "rank" || name == "node-rank") {
      options.node = number(name, value, 0);
    } else if (name == "max-restarts") {
      options.restarts = number(name, value, 0);
    } else if (name == "hang-limit") {
      options.hang_limit_s = number(name, value, 0);
    } else if (name == "bind") {
      if (value != "cores" && value != "none")
        throw UsageError({"--bind is \"" + value + "\"", "command line", "write --bind=cores or --bind=none"});
      options.binds = value == "cores";
    } else if (name == "at") {
      options.at = value;
    } else if (name == "logs") {
      options.logs = value;
    } else if (name == "slurm") {
      options.slurm = value;
    } else if (name == "sbatch") {
      options.sbatch.push_back(value);
    } else {
      throw UsageError({"launch knows no option " + word, "command line",
                        "options of the run come after its recipe: millrace launch --nproc 2 train RECIPE " + word});
    }
    if (name == "max-restarts" || name == "hang-limit" || name == "bind" || name == "logs")
      options.given.push_back(std::string("--").append(name).append("=").append(value));
  }
  if (i < words.size() && words[i] == "--") ++i;
  options.words.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  return options;
}

void check(const Options& options) {
  if (options.nproc == 0) throw UsageError({"how many ranks?", "--nproc", "millrace launch --nproc 2 train RECIPE ..."});
  if (options.words.empty() || (options.words[0] != "train" && options.words[0] != "doctor"))
    throw UsageError({options.words.empty() ? "what should the ranks do?"
                                            : "launch starts training runs and the doctor, not " + options.words[0],
                      "command line", "millrace launch --nproc 2 train RECIPE ..."});
  if (options.node >= options.nodes)
    throw UsageError({"--rank " + std::to_string(options.node) + " is no machine of --nodes " + std::to_string(options.nodes),
                      "command line", "machines are numbered from 0"});
  if (!options.slurm.empty() && (!options.at.empty() || options.node != 0))
    throw UsageError({"with --slurm the batch file sets --rank and --at itself", options.at.empty() ? "flag --rank" : "flag --at",
                      "leave the flag out: --slurm FILE --nproc 4 --nodes 2 train RECIPE"});
  if (options.slurm.empty() && !options.sbatch.empty())
    throw UsageError({"--sbatch is for a batch file", "flag --sbatch", "name the file: --slurm job.sbatch"});
  if (options.slurm.empty() && options.nodes > 1 && options.at.find(':') == std::string::npos)
    throw UsageError({"several machines need a meeting point", "--at",
                      "give all of them the same --at HOST:PORT, an address of the machine with --rank 0"});
}

// Finds a misspelt recipe before the ranks start, and before a job waits in a queue.
void check_recipe(const Options& options, std::span<const Entry> recipes) {
  const bool names_none = options.words.size() < 2 || options.words[1].starts_with("-");
  // With --slurm, slurm_text() reports a missing name.
  if (options.words[0] != "train" || (names_none && !options.slurm.empty())) return;
  Arguments words(std::span(options.words).subspan(1));
  static_cast<void>(take_recipe(words, recipes, "launch train"));
}

distributed::MeetingPoint::Address place_of(const Options& options) {
  if (options.at.empty()) return {"127.0.0.1", 0};
  const std::size_t colon = options.at.rfind(':');
  const std::string text = colon == std::string::npos ? "0" : options.at.substr(colon + 1);
  const int port = number("at", text, options.nodes > 1 ? 1 : 0);
  constexpr int kLastPort = 65535;
  if (port > kLastPort)
    throw UsageError({"--at names port " + text + ", but the last port is " + std::to_string(kLastPort), "--at",
                      "give a port that is free on the machine with --rank 0"});
  std::string host = options.at.substr(0, colon);
  // Removes the brackets of "[::1]:29500".
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {std::move(host), port};
}

std::filesystem::path make_logs(const Options& options) {
  std::filesystem::path folder = options.logs;
  if (folder.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    std::string stamp(32, '\0');
    stamp.resize(std::strftime(stamp.data(), stamp.size(), "%Y%m%d-%H%M%S", &local));
    folder = std::filesystem::path("runs") / "launch" / (stamp + "-" + std::to_string(::getpid()));
  }
  std::filesystem::create_directories(folder);
  return folder;
}

// The words that start the command again, so that the run resumes in its folder.
std::vector<std::string> words_to_go_on(std::vector<std::string> words, const std::string& run_folder) {
  std::erase(words, "--fresh");
  std::erase(words, "--train.resume=never");
  const std::vector<std::string> never = {"--train.resume", "never"};
  const auto at = std::search(words.begin(), words.end(), never.begin(), never.end());
  if (at != words.end()) words.erase(at, at + 2);
  const auto names_run = [](const std::string& word) {
    const std::string flag = word.substr(0, word.find('='));
    return flag == "--run" || flag == "--run.dir";
  };
  if (!run_folder.empty() && std::ranges::none_of(words, names_run)) words.insert(words.end(), {"--run", run_folder});
  return words;
}

void report(telemetry::Console& console, const RanksEnd& end) {
  console.warning(end.failure + (end.cause.empty() ? "" : "\n  " + end.cause) +
                  (end.log.empty() ? "" : "\n  its output: " + end.log.string()));
}

int write_batch_file(const Options& options) {
  write_slurm_file({options.nproc, options.nodes, options.sbatch, options.given, options.words}, options.slurm);
  print("wrote " + options.slurm + "\nnext: sbatch " + shell_word(options.slurm) + "\n");
  return 0;
}

int run_launch(const Invocation& call) {
  const Options options = options_of(call.words);
  check(options);
  check_recipe(options, call.recipes);
  if (!options.slurm.empty()) return write_batch_file(options);
  const bool json = std::ranges::find(options.words, "--json") != options.words.end();
  telemetry::Console console(telemetry::Console::Mode::automatic, json ? 2 : 1);
  install_signal_handlers();
  constexpr double kWaitForMachines = 300;
  std::optional<BeforeFirstStep> waiting(std::in_place, json ? STDERR_FILENO : STDOUT_FILENO, 1U);
  distributed::MeetingPoint meeting(place_of(options), options.node == 0, kWaitForMachines);
  waiting.reset();  // from here on signals are passed on to the ranks
  RankStart start{.words = options.words, .ranks = {}, .host = meeting.address().host, .port = meeting.address().port};
  start.most_restarts = options.restarts;
  start.logs = make_logs(options);
  start.plain_out = json;
  start.hang_limit_s = options.hang_limit_s;
  if (options.binds) start.cores = core_slices(usable_cpus(), options.nproc);
  for (int local = 0; local < options.nproc; ++local)
    start.ranks.push_back({options.node * options.nproc + local, local, options.nodes * options.nproc, options.nproc});
  distributed::StatusPages pages(options.nproc);
  std::string run_folder;
  for (;; ++start.attempt) {
    const RanksEnd end =
        run_ranks(start, pages, [&] { return options.nodes > 1 ? meeting.announced(start.attempt) : std::nullopt; });
    if (end.failure.empty()) return end.exit_code;
    meeting.announce(start.attempt, end.failure + ", machine " + std::to_string(options.node));
    report(console, end);
    if (meeting.is_gone()) console.warning("the launcher that holds the meeting point at " + options.at + " is gone");
    if (meeting.is_gone() || start.attempt >= options.restarts || pending_signal() != 0) return end.exit_code;
    console.notice("restarting all ranks, restart " + std::to_string(start.attempt + 1) + " of " +
                   std::to_string(options.restarts));
    if (!end.run_folder.empty()) run_folder = end.run_folder;
    start.words = words_to_go_on(options.words, run_folder);
  }
}

}  // namespace

constinit const Command kLaunch = {
    .name = "launch",
    .arguments = "--nproc N [--nodes M --rank R --at HOST:PORT | --slurm FILE] [--max-restarts K] train RECIPE ...",
    .summary = "train a recipe on several processes or machines",
    .group = "Train and use a model",
    .help = kLaunchHelp,
    .run = run_launch};

}  // namespace millrace::cli
