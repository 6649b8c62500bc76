#include "millrace/cli/bench/benches.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/text.h"
#include "millrace/device/device.h"
#include "millrace/train/run/command_config.h"

namespace millrace::cli {
namespace {

struct Way {
  std::string kind;  // strong: all ranks share the same global batch; weak: each rank has the same batch size
  std::int64_t ranks = 1, batch = 1;
  // for each round; step_ms: the time of a step; waits: the share of that time spent waiting for gradients
  std::vector<double> step_ms, waits;
  // sent: bytes that a rank sends in a step; early: share of the gradient buckets that are sent during the backward pass
  double sent = 0, early = 0;
};

std::vector<std::int64_t> numbers(const std::string& list) {
  std::vector<std::int64_t> all;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    std::int64_t value = 0;
    const auto [last, fault] = std::from_chars(list.data() + at, list.data() + end, value);
    if (fault != std::errc() || last != list.data() + end || value < 1)
      throw UsageError({quoted(list) + " is not a list of numbers of ranks", "flag --ranks", "write for example --ranks 1,2,4"});
    all.push_back(value);
    at = end + 1;
  }
  if (all.front() != 1) all.insert(all.begin(), 1);  // adds a run with one rank, because the other runs are compared with it
  return all;
}

std::int64_t batch_of(const Json& config) {
  const Json& batch = config.at("data").at("batch_size");
  if (batch.is_number_integer()) return batch.get<std::int64_t>();
  throw UsageError(
      {"the batch is " + batch.dump() + ": ranks would not have equal shares of it", "data.batch_size",
       "give a number: --data.batch_size=N is the global batch for strong scaling, and the batch of each rank for weak scaling"});
}

// What to measure: strong and weak scaling for each number of ranks. Strong scaling is left out if the ranks can't share the
// batch equally.
std::vector<Way> ways_of(const std::vector<std::int64_t>& ranks, std::int64_t batch, std::vector<std::string>& left_out) {
  std::vector<Way> ways;
  for (const std::int64_t count : ranks) {
    if (batch % count == 0) {
      ways.push_back({.kind = "strong", .ranks = count, .batch = batch / count});
    } else {
      left_out.push_back("strong with " + std::to_string(count) + " ranks: a batch of " + std::to_string(batch) +
                         " can't be divided equally");
    }
  }
  for (const std::int64_t count : ranks) ways.push_back({.kind = "weak", .ranks = count, .batch = batch});
  return ways;
}

void measure(const BenchRuns& runs, std::int64_t threads, Way& way) {
  BenchRuns own = runs;
  own.ranks = way.ranks;
  own.words.push_back(flag("data.batch_size", std::to_string(way.batch)));
  own.words.push_back(flag("device.threads", std::to_string(threads)));
  const Json summary = run_once(own, "");
  way.step_ms.push_back(summary.at("step_ms").at("p50"));
  const Json& shares = summary.at("shares");
  double all = 0;
  for (const char* phase : {"data_wait", "copy", "prepare", "forward", "backward", "reduction", "optimizer", "metrics"})
    all += shares.at(phase).get<double>();
  way.waits.push_back(all > 0 ? shares.at("reduction").get<double>() / all : 0.0);
  if (!summary.contains("gradients_sent")) return;
  const Json& sent = summary["gradients_sent"];
  const auto buckets = sent.at("buckets").get<double>();
  way.sent = sent.at("bytes").get<double>() / static_cast<double>(runs.steps);
  way.early = buckets > 0 ? sent.at("early_buckets").get<double>() / buckets : 0.0;
}

double samples_per_s(const Way& way) { return static_cast<double>(way.ranks * way.batch) / (median(way.step_ms) * 1e-3); }

// The samples per second of a rank, divided by those of a run with a single rank.
double efficiency(const Way& way, const std::vector<Way>& all) {
  const auto alone = std::ranges::find_if(all, [&](const Way& one) { return one.kind == way.kind && one.ranks == 1; });
  return samples_per_s(way) / (static_cast<double>(way.ranks) * samples_per_s(*alone));
}

std::string percent(double part) { return fixed(100 * part, 0) + " %"; }

void show(const std::string& recipe, const std::vector<Way>& ways, std::int64_t steps, std::int64_t rounds,
          std::int64_t threads) {
  std::vector<std::vector<std::string>> rows = {{"scaling", "ranks", "batch of each", "step, ms", "samples/s", "efficiency",
                                                 "waits for gradients", "sent a step", "during backward"}};
  for (const Way& way : ways) {
    const bool alone = way.ranks == 1;
    rows.push_back({way.kind, std::to_string(way.ranks), std::to_string(way.batch), fixed(median(way.step_ms), 1),
                    fixed(samples_per_s(way), 1), percent(efficiency(way, ways)), alone ? "-" : percent(median(way.waits)),
                    alone ? "-" : human_bytes(way.sent), alone ? "-" : percent(way.early)});
  }
  print(recipe + " on ranks of this machine, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
        " each, runs of " + std::to_string(steps) + " steps, median of " + std::to_string(rounds) + " rounds\n" + table(rows));
}

}  // namespace

int bench_scaling(const Invocation& call, Arguments& arguments) {
  const Entry& entry = take_recipe(arguments, call.recipes, "bench scaling");
  const bool json = arguments.flag("json");
  const std::vector<std::int64_t> ranks = numbers(arguments.value("ranks").value_or("1,2"));
  const std::int64_t rounds = arguments.integer("rounds", 3, 1);
  BenchRuns runs;
  runs.steps = arguments.integer("steps", 20, 2);
  runs.words = arguments.words();
  runs.words.insert(runs.words.begin(), entry.name);
  // Finds all mistakes before the first run; the messages name this command.
  const CommandConfig config = resolve_command_config(entry, arguments);
  std::vector<std::string> left_out;
  std::vector<Way> ways = ways_of(ranks, batch_of(config.resolved.values), left_out);
  const std::int64_t threads = std::max<std::int64_t>(1, device::cpu_info().physical_cores / *std::ranges::max_element(ranks));
  const ScratchFolder scratch;
  runs.folder = scratch.path();
  // this run also makes data, caches and components, so that later runs find them
  pin_choices(runs, run_once(runs, ""), config.resolved.values);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (Way& way : ways) measure(runs, threads, way);
  }
  if (!json) {
    show(entry.name, ways, runs.steps, rounds, threads);
    for (const std::string& text : left_out) print("not measured: " + text + "\n");
    return 0;
  }
  Json all = Json::array();
  for (const Way& way : ways) {
    all.push_back({{"scaling", way.kind},
                   {"ranks", way.ranks},
                   {"batch_size", way.batch},
                   {"step_ms", median(way.step_ms)},
                   {"samples_per_s", samples_per_s(way)},
                   {"efficiency", efficiency(way, ways)},
                   {"reduction_share", median(way.waits)},
                   {"sent_bytes_per_step", way.sent},
                   {"early_buckets_share", way.early}});
  }
  print_json({{"recipe", entry.name},
              {"steps", runs.steps},
              {"rounds", rounds},
              {"threads", threads},
              {"ways", std::move(all)},
              {"left_out", left_out}});
  return 0;
}

}  // namespace millrace::cli
