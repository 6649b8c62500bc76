#include "millrace/cli/bench/bench_recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/shared/command_config.h"
#include "millrace/cli/shared/text.h"
#include "millrace/train/recipe/switchboard.h"

namespace millrace::cli {
namespace {

constexpr std::size_t kMostRows = 7;

// An advice of a guide: the switchboard's rows that follow it, and what the guide promises.
struct Advice {
  std::string_view text;
  std::array<std::string_view, kMostRows> rows;
  std::string_view claim;
};

struct Guide {
  std::string_view recipe;
  std::array<Advice, 4> advice;  // in the guide's order; unused places are empty
  std::string_view whole;        // what it promises of all together
};

constexpr Advice kLoading{
    "loading in parallel, samples kept",
    {"loader_threads", "loader_adaptation", "look_ahead", "sample_cache", "hdf5_direct", "file_index", "token_cache"},
    ""};
constexpr Advice with_claim(Advice advice, std::string_view claim) {
  advice.claim = claim;
  return advice;
}
constexpr Advice kShort{"mixed precision", {"autocast", "bf16_weights"}, ""};

constexpr std::array kGuides = {
    Guide{"cosmology",
          {{{"components fitted once", {"stored_pca"}, "100x a batch, \"alone 5-10x\""},
            {"preprocessing in one pass", {"fused_projection"}, "2-3x of preprocessing"},
            with_claim(kLoading, "2x of loading"),
            with_claim(kShort, "")}},
          "5-10x"},
    Guide{"language_model",
          {{{"no mask made anew each forward", {"fused_attention"}, "5-15 % of the forward"},
            with_claim(kShort, "1.5-2x, memory -25-30 %"),
            with_claim(kLoading, "10-20 % of loading"),
            {"no questions to the device", {"device_skip"}, "less overhead"}}},
          "2-3x"},
    Guide{"neural_response",
          {{{"sessions grouped, one forward of the core", {"joined_core"}, "100x against a forward for each sample"},
            with_claim(kLoading, "0.03 to 2.0 it/s"),
            with_claim(kShort, ""),
            {}}},
          "0.03 to 2.0 it/s"},
    Guide{"autoencoder_3d",
          {{with_claim(kShort, "1.5-2x, memory -50 %"),
            with_claim(kLoading, ""),
            {"optimiser in one kernel", {"fused_optimizer"}, "a fused AdamW"},
            {}}},
          ""},
    Guide{"image_pairs",
          {{with_claim(kShort, "bf16 by default"), with_claim(kLoading, "pinned, 4 readers and more"), {}, {}}},
          "2-5 samples/s on its GPU"}};

struct Stage {
  std::string name;
  std::vector<std::string> off;  // {"all"} for the first
  std::string claim;
  std::vector<double> ms, memory;
  SeenRun last;
};

std::vector<std::string> all_rows() {
  std::vector<std::string> names;
  for (const SwitchRow& row : switch_rows()) names.emplace_back(row.name);
  return names;
}

// Everything off; each advice on top of those before it; everything.
std::vector<Stage> stages_of(const std::string& recipe) {
  std::vector<std::string> off = all_rows();
  std::vector<Stage> stages = {{.name = "before: everything off", .off = off, .claim = "", .ms = {}, .memory = {}, .last = {}}};
  const auto guide = std::ranges::find(kGuides, recipe, &Guide::recipe);
  if (guide != kGuides.end()) {
    for (const Advice& advice : guide->advice) {
      const std::size_t before = off.size();
      std::erase_if(off, [&](const std::string& name) {
        const SwitchRow& row = *std::ranges::find(switch_rows(), name, &SwitchRow::name);
        return std::ranges::count(advice.rows, name) > 0 && reaches(recipe, row);
      });
      if (off.size() == before) continue;
      stages.push_back({.name = "+ " + std::string(advice.text),
                        .off = off,
                        .claim = std::string(advice.claim),
                        .ms = {},
                        .memory = {},
                        .last = {}});
    }
  }
  stages.push_back({.name = "+ the rest: ours",
                    .off = {},
                    .claim = guide == kGuides.end() ? "" : std::string(guide->whole),
                    .ms = {},
                    .memory = {},
                    .last = {}});
  return stages;
}

struct Times {
  double middle = 0, least = 0, most = 0;  // of the rounds
};

// How many times as fast `stage` is as `than`, round by round.
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
  print("what the guide of " + recipe + " promises, here: runs of " + std::to_string(runs.steps) + " steps, medians of " +
        std::to_string(rounds) + " rounds in turns\n");
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
  const CommandConfig config = resolve_command_config(entry, arguments);  // all mistakes now, in this command's name
  const bool is_bare = entry.needs_data && entry.needs_data(config.resolved.values) && config.preset.empty();
  if (is_bare) runs.words.insert(runs.words.end(), {"--preset", "smoke"});
  const ScratchFolder scratch;
  runs.folder = scratch.path();
  pin_choices(runs, run_once(runs, ""), config.resolved.values);  // also makes data, caches and components

  std::vector<Stage> stages = stages_of(entry.name);
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
