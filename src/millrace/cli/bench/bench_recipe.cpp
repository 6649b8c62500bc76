#include "millrace/cli/bench/benches.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/text.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/command_config.h"

namespace millrace::cli {
namespace {

struct Stage {
  std::string name;
  std::vector<std::string> off;  // names of the rows that are off; in the first stage, all rows
  std::string claim;
  std::vector<double> ms, memory;
  SeenRun last;
};

std::vector<std::string> all_rows() {
  std::vector<std::string> names;
  for (const SwitchRow& row : switch_rows()) names.emplace_back(row.name);
  return names;
}

// The stages. In the first, everything is off. Each further stage adds one piece of advice. In the last, everything is on.
std::vector<Stage> stages_of(const Entry& entry) {
  std::vector<std::string> off = all_rows();
  std::vector<Stage> stages = {{.name = "before: everything off", .off = off, .claim = "", .ms = {}, .memory = {}, .last = {}}};
  for (const Advice& advice : entry.guide.advice) {
    const std::size_t before = off.size();
    std::erase_if(off, [&](const std::string& name) {
      const SwitchRow& row = *std::ranges::find(switch_rows(), name, &SwitchRow::name);
      return std::ranges::count(advice.rows, name) > 0 && reaches(entry, row);
    });
    if (off.size() == before) continue;
    stages.push_back({.name = "+ " + advice.text, .off = off, .claim = advice.claim, .ms = {}, .memory = {}, .last = {}});
  }
  stages.push_back({.name = "+ the rest: ours", .off = {}, .claim = entry.guide.whole, .ms = {}, .memory = {}, .last = {}});
  return stages;
}

struct Times {
  double middle = 0, least = 0, most = 0;  // median, least and greatest ratio of all rounds
};

// The speed of `stage` divided by the speed of `than`, for each round.
Times as_fast(const Stage& stage, const Stage& than) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < stage.ms.size(); ++i) ratios.push_back(than.ms[i] / stage.ms[i]);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return {median(ratios), *least, *most};
}

std::string text_of(const Times& times) {
  return fixed(times.middle, 2) + "x [" + fixed(times.least, 2) + ", " + fixed(times.most, 2) + "]";
}

double apart(const SeenRun& one, const SeenRun& other) {
  return one.loss == other.loss ? 0.0 : std::abs(one.loss - other.loss) / std::abs(other.loss);
}

void print_stages(const std::string& recipe, const std::vector<Stage>& stages, const BenchRuns& runs, std::int64_t rounds) {
  print("what the guide of " + recipe + " promises, measured here: runs of " + std::to_string(runs.steps) +
        " steps, medians of " + std::to_string(rounds) + " rounds\n");
  std::vector<std::vector<std::string>> rows = {
      {"", "ms a step", "of the row above", "of the first", "memory", "last loss", "the guide"}};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    rows.push_back({stage.name, fixed(median(stage.ms), 2), i == 0 ? "-" : text_of(as_fast(stage, stages[i - 1])),
                    i == 0 ? "-" : text_of(as_fast(stage, stages[0])), human_bytes(median(stage.memory)),
                    significant(stage.last.loss, 5), stage.claim.empty() ? "-" : stage.claim});
  }
  print(table(rows));
}

Json to_json(const std::vector<Stage>& stages) {
  Json all = Json::array();
  for (const Stage& stage : stages) {
    const Times times = as_fast(stage, stages[0]);
    all.push_back({{"stage", stage.name},
                   {"off", stage.off},
                   {"step_ms", median(stage.ms)},
                   {"as_fast_as_the_first", times.middle},
                   {"least", times.least},
                   {"most", times.most},
                   {"memory_bytes", median(stage.memory)},
                   {"loss", stage.last.loss},
                   {"loss_apart_of_the_first", apart(stage.last, stages[0].last)},
                   {"guide", stage.claim}});
  }
  return all;
}

}  // namespace

int bench_recipe(const Invocation& call, Arguments& arguments) {
  const Entry& entry = take_recipe(arguments, call.recipes, "bench");
  const bool json = arguments.flag("json");
  const std::int64_t rounds = arguments.integer("rounds", 3, 1);
  BenchRuns runs;
  runs.steps = arguments.integer("steps", 20, 2);
  runs.words = arguments.words();
  runs.words.insert(runs.words.begin(), entry.name);
  // Finds all mistakes before the first run; the messages name this command.
  const CommandConfig config = resolve_command_config(entry, arguments);
  const bool is_bare = entry.needs_data && entry.needs_data(config.resolved.values) && config.preset.empty();
  if (is_bare) runs.words.insert(runs.words.end(), {"--preset", "smoke"});
  const ScratchFolder scratch;
  runs.folder = scratch.path();
  runs.off = config.resolved.values.at("train").at("off").get<std::vector<std::string>>();
  // this run also makes data, caches and components, so that later runs find them
  pin_choices(runs, run_once(runs, ""), config.resolved.values);

  std::vector<Stage> stages = stages_of(entry);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (Stage& stage : stages) {
      stage.last = seen_in(run_once(runs, joined(stage.off, ",")));
      stage.ms.push_back(stage.last.step_ms);
      stage.memory.push_back(stage.last.memory);
    }
  }
  if (json) {
    print_json({{"recipe", entry.name}, {"steps", runs.steps}, {"rounds", rounds}, {"stages", to_json(stages)}});
  } else {
    print_stages(entry.name, stages, runs, rounds);
  }
  return 0;
}

}  // namespace millrace::cli
