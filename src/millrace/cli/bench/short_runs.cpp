#include "millrace/cli/bench/short_runs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/error.h"
#include "millrace/cli/bench/bench_runs.h"
#include "millrace/cli/bench/child_run.h"
#include "millrace/runs/steady_accounts.h"

namespace millrace::cli {
namespace {

constexpr std::int64_t kFewest = 10, kMost = 20000;  // the fewest and the most steps of a run

std::int64_t steps_with(const ShortRuns& runs, const doctor::Settings& changed) {
  const auto rows = changed.find("data.batch_size");
  if (rows == changed.end() || runs.rows <= 0) return runs.steps;
  const double larger = std::stod(rows->second) / static_cast<double>(runs.rows);
  return std::clamp(static_cast<std::int64_t>(std::llround(static_cast<double>(runs.steps) / larger)), kFewest, kMost);
}

Json summary_of(const ShortRuns& runs, const doctor::Settings& changed) {
  std::vector<std::string> words = {"train"};
  words.insert(words.end(), runs.words.begin(), runs.words.end());
  for (const auto& [key, value] : changed) words.push_back(flag(key, value));
  // Passes the folder as the key run.dir, because a later word overrides an earlier one for the same key. If the user's words
  // had --run.dir, an option --run would not override it, and --fresh would replace the user's run.
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"run.dir", (runs.folder / "run").string()},
                                          {"train.max_steps", std::to_string(steps_with(runs, changed))},
                                          {"train.epochs", "0"},
                                          {"train.resume", "never"},
                                          {"train.validate_batches", "1"},
                                          {"log.images", "false"},
                                          {"log.doctor", "true"},
                                          {"log.doctor_trials", runs.with_trials ? "1" : "0"}})
    words.push_back(flag(key, value));
  words.insert(words.end(), {"--fresh", "--json"});
  return child_json(words);
}

// The seconds of the loop, without validation and other accounts that take too large a share of a short run.
double loop_seconds(const Json& summary) {
  double sum = 0;
  for (const auto& [account, seconds] : summary.at("accounts").items()) {
    if (runs::is_steady(account)) sum += seconds.get<double>();
  }
  return sum;
}

}  // namespace

doctor::ShortRun make_run(const ShortRuns& runs, const doctor::Settings& changed) {
  doctor::ShortRun run;
  try {
    const Json summary = summary_of(runs, changed);
    const double loop = loop_seconds(summary);
    run.seconds = loop / std::max(1.0, summary.at("samples").get<double>());
    run.others = summary.value("others", 0.0);
    for (const auto& [account, seconds] : summary.at("accounts").items()) {
      if (runs::is_steady(account)) run.shares[account] = seconds.get<double>() / loop;
    }
    for (const Json& each : summary.at("findings")) {
      doctor::Finding finding{.id = each.value("id", ""),
                              .what = each.value("what", ""),
                              .remedy = each.value("remedy", ""),
                              .key = each.value("key", ""),
                              .value = each.value("value", ""),
                              .gain = std::nullopt};
      if (each.contains("gain")) finding.gain = doctor::Finding::Gain{each.at("gain"), each.at("gain_low"), each.at("gain_high")};
      run.findings.push_back(std::move(finding));
    }
  } catch (const UsageError& error) {
    run.failure = error.message().what + ": " + error.message().next;
  }
  return run;
}

std::int64_t steps_for(const ShortRuns& runs, double seconds) {
  const Json summary = summary_of(runs, {});
  const double step = loop_seconds(summary) / std::max(1.0, summary.at("steps").get<double>());
  return std::clamp(static_cast<std::int64_t>(std::ceil(seconds / std::max(step, 1e-6))), kFewest, kMost);
}

}  // namespace millrace::cli
