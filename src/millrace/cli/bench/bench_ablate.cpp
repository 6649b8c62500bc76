#include "millrace/cli/bench/benches.h"

#include <algorithm>
#include <cmath>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/shared/arguments.h"
#include "millrace/cli/shared/text.h"
#include "millrace/device/device.h"
#include "millrace/kernels/kernels.h"
#include "millrace/train/recipe/switchboard.h"
#include "millrace/train/run/command_config.h"

namespace millrace::cli {
namespace {

constexpr double kNoise = 0.03;  // share of a step's time by which two runs may differ by chance

std::string machine(const Json& config) {
  const device::Cpu& cpu = device::cpu_info();
  const device::Choice choice = device::choose(config.at("device").at("name").get<std::string>());
  return (choice.device.is_cpu() ? "" : choice.reason + ", beside ") + cpu.name + ", kernels " +
         std::string(kernels::instruction_set()) + ", " + std::to_string(cpu.physical_cores) +
         (cpu.physical_cores == 1 ? " core" : " cores");
}

struct Row {
  const SwitchRow* row = nullptr;
  double on_ms = 0, off_ms = 0, ratio = 0;  // ratio: off_ms / on_ms
  double least_ratio = 0, most_ratio = 0;   // the least and the greatest ratio of a pair of runs
  // in bytes; memory: peak with the row off minus peak with the row on; memory_on: peak with the row on
  double memory = 0, memory_on = 0;
  double difference = 0;  // relative difference of the last losses
  bool same_state = false;
  std::string claim;

  // True if the results with and without the row are as equal as the switchboard promises.
  [[nodiscard]] bool equal() const {
    if (same_state) return true;
    if (row->equality == Equality::bits) return false;
    return row->equality == Equality::statistical || difference <= row->tolerance;
  }
  [[nodiscard]] std::string equality() const {
    if (same_state) return "to the bit";
    const std::string apart = "loss " + significant(difference, 2) + " apart";
    return equal() ? apart : "DIFFERS: " + apart;
  }
  [[nodiscard]] std::string verdict() const {
    std::string saves = memory > kNoise * memory_on ? "saves " + human_bytes(memory) : "";
    if (ratio > 1 + kNoise && least_ratio > 1) return fixed(ratio, 2) + "x as fast with it" + (saves.empty() ? "" : ", " + saves);
    if (ratio < 1 - kNoise && most_ratio < 1) {
      if (!saves.empty()) return saves + ", takes " + fixed(1 / ratio, 2) + "x the time";
      return "does not help here: " + fixed(1 / ratio, 2) + "x as fast without";
    }
    if (!saves.empty()) return saves;
    return same_state ? "no difference here" : "no faster here";
  }
  [[nodiscard]] std::string name() const {
    std::string asked;
    for (const auto& [key, value] : row->occasion.config) {
      if (!key.empty()) asked += (asked.empty() ? " (" : ", ") + std::string(key) + "=" + std::string(value);
    }
    return std::string(row->name) + asked + (asked.empty() ? "" : ")");
  }
};

// The gain that the recipe's guide promises for the row; "" if it promises no gain.
std::string claim_of(const Guide& guide, std::string_view row) {
  for (const Advice& advice : guide.advice) {
    if (std::ranges::count(advice.rows, row) > 0) return advice.claim;
  }
  return "";
}

Row measure(BenchRuns plan, const Entry& entry, const SwitchRow& row, std::int64_t rounds) {
  for (const auto& [key, value] : row.occasion.config) {
    if (!key.empty()) plan.words.push_back(flag(key, value));
  }
  std::vector<double> on_ms, off_ms, ratios, memory;
  SeenRun on, off;
  for (std::int64_t round = 0; round < rounds; ++round) {
    on = seen_in(run_once(plan, ""));
    off = seen_in(run_once(plan, std::string(row.name)));
    on_ms.push_back(on.step_ms);
    off_ms.push_back(off.step_ms);
    ratios.push_back(off.step_ms / on.step_ms);
    memory.push_back(off.memory - on.memory);
  }
  Row result{.row = &row, .on_ms = median(on_ms), .off_ms = median(off_ms), .ratio = median(ratios), .memory = median(memory)};
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  result.least_ratio = *least;
  result.most_ratio = *most;
  result.memory_on = on.memory;
  result.same_state = on.state == off.state;
  result.difference = on.loss == off.loss ? 0.0 : std::abs(off.loss - on.loss) / std::abs(on.loss);
  result.claim = claim_of(entry.guide, row.name);
  return result;
}

// The rows in `names`. If `names` is empty, all rows that the recipe uses; the names of the rows that it does not use go to
// `out_of_reach`.
std::vector<const SwitchRow*> chosen_rows(const std::vector<std::string>& names, const Entry& entry, Json& out_of_reach) {
  std::vector<const SwitchRow*> rows;
  try {
    const Switches known(names);
    for (const Switches::Setting& setting : known.settings()) {
      if (!names.empty() && setting.on) continue;
      if (names.empty() && !reaches(entry, *setting.row)) {
        out_of_reach.push_back(setting.row->name);
      } else {
        rows.push_back(setting.row);
      }
    }
    // throws an error that names this command's flag, because `error` names train.off
  } catch (const ConfigError& error) {
    throw UsageError({error.message().what, "flag --rows", error.message().next});
  }
  return rows;
}

Json to_json(const Row& row) {
  return {{"row", row.row->name},
          {"on_ms", row.on_ms},
          {"off_ms", row.off_ms},
          {"off_over_on", row.ratio},
          {"least_off_over_on", row.least_ratio},
          {"most_off_over_on", row.most_ratio},
          {"memory_bytes", row.memory},
          {"equality", row.equality()},
          {"equal", row.equal()},
          {"loss_apart", row.difference},
          {"verdict", row.verdict()},
          {"guides", row.claim}};
}

std::string signed_bytes(double bytes) { return (bytes < 0 ? "-" : "+") + human_bytes(std::abs(bytes)); }

}  // namespace

int bench_ablate(const Invocation& call, Arguments& arguments) {
  const Entry& entry = take_recipe(arguments, call.recipes, "bench ablate");
  const bool json = arguments.flag("json");
  const std::int64_t rounds = arguments.integer("rounds", 3, 1);
  BenchRuns plan;
  plan.steps = arguments.integer("steps", 20, 2);
  std::vector<std::string> names;
  for (const std::string& list : arguments.values({"rows"})) {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t end = std::min(list.find(',', at), list.size());
      names.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  Json out_of_reach = Json::array();
  const std::vector<const SwitchRow*> rows = chosen_rows(names, entry, out_of_reach);
  plan.words = arguments.words();
  plan.words.insert(plan.words.begin(), entry.name);
  // Finds all mistakes before the first run; the messages name this command.
  const CommandConfig config = resolve_command_config(entry, arguments);
  const ScratchFolder scratch;
  plan.folder = scratch.path();
  plan.off = config.resolved.values.at("train").at("off").get<std::vector<std::string>>();
  // this run also makes data, caches and components, so that later runs find them
  pin_choices(plan, run_once(plan, ""), config.resolved.values);

  Json all = Json::array();
  std::vector<std::vector<std::string>> table_rows = {
      {"row", "on, ms", "off, ms", "memory off", "equality", "verdict", "guides"}};
  bool equal = true;
  for (const SwitchRow* row : rows) {
    const Row seen = measure(plan, entry, *row, rounds);
    equal = equal && seen.equal();
    all.push_back(to_json(seen));
    table_rows.push_back({seen.name(), fixed(seen.on_ms, 2), fixed(seen.off_ms, 2), signed_bytes(seen.memory), seen.equality(),
                          seen.verdict(), seen.claim.empty() ? "-" : seen.claim});
  }
  if (json) {
    print_json({{"recipe", entry.name},
                {"machine", machine(config.resolved.values)},
                {"steps", plan.steps},
                {"rounds", rounds},
                {"rows", std::move(all)},
                {"out_of_reach", out_of_reach}});
  } else {
    print("each row off against on: " + entry.name + ", on " + machine(config.resolved.values) + ", runs of " +
          std::to_string(plan.steps) + " steps, median of " + std::to_string(rounds) + " pairs\n" + table(table_rows));
    std::string left;
    for (const Json& name : out_of_reach) left += (left.empty() ? "" : ", ") + name.get<std::string>();
    if (!left.empty()) print("not measured, because " + entry.name + " does not use them: " + left + "\n");
  }
  return equal ? 0 : 1;
}

}  // namespace millrace::cli
