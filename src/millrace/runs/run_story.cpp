#include "millrace/runs/run_story.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::runs {
namespace {

bool is_seconds(const Json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0 && value.get<double>() < 1e12;
}

void add(const Json& accounts, std::map<std::string, double>& sums) {
  if (!accounts.is_object()) return;
  for (const auto& [name, seconds] : accounts.items()) {
    if (is_seconds(seconds)) sums[name] += seconds.get<double>();
  }
}

std::vector<std::pair<std::string, double>> largest_first(const std::map<std::string, double>& sums) {
  std::vector<std::pair<std::string, double>> accounts(sums.begin(), sums.end());
  std::ranges::stable_sort(accounts, std::ranges::greater(), &std::pair<std::string, double>::second);
  return accounts;
}

std::vector<std::pair<std::string, double>> accounts_of(const RunStory& story) {
  std::map<std::string, double> sums;
  if (story.summary.is_object()) add(story.summary.value("accounts", Json()), sums);
  if (sums.empty() && !story.processes.empty()) {
    for (const Json& line : story.processes.back()) {
      if (text_at(line, {"kind"}) == "step") add(line.value("accounts", Json()), sums);
    }
  }
  return largest_first(sums);
}

std::vector<std::vector<std::pair<std::string, double>>> ranks_of(const RunStory& story) {
  std::vector<std::vector<std::pair<std::string, double>>> ranks;
  const Json all = story.summary.is_object() ? story.summary.value("ranks", Json()) : Json();
  if (!all.is_array()) return ranks;
  for (const Json& rank : all) {
    std::map<std::string, double> sums;
    if (rank.is_object()) add(rank.value("accounts", Json()), sums);
    ranks.push_back(largest_first(sums));
  }
  return ranks;
}

std::vector<BlockTime> blocks_of(const RunStory& story) {
  Json all = story.summary.is_object() ? story.summary.value("blocks", Json()) : Json();
  if (story.summary.is_null() && !story.processes.empty()) {
    for (const Json& line : story.processes.back()) {
      if (text_at(line, {"kind"}) == "blocks") all = line.value("blocks", Json());
    }
  }
  return block_times_of(all);
}

// The findings whose members `id` and `what` are texts that are not empty.
Json usable(const Json& findings) {
  if (!findings.is_array()) return {};
  Json some = Json::array();
  for (const Json& finding : findings) {
    if (!text_at(finding, {"id"}).empty() && !text_at(finding, {"what"}).empty()) some.push_back(finding);
  }
  return some;
}

Json findings_of(const RunStory& story) {
  if (story.summary.is_object() && story.summary.contains("findings")) return usable(story.summary["findings"]);
  Json latest;
  if (story.processes.empty()) return latest;
  for (const Json& line : story.processes.back()) {
    if (text_at(line, {"kind"}) == "step" && line.contains("accounts") && latest.is_null()) latest = Json::array();
    if (text_at(line, {"kind"}) == "findings" && line.contains("findings")) latest = usable(line["findings"]);
  }
  return latest;
}

}  // namespace

RunStory story_of(const Run& run) {
  const bool alive = run.is_running();
  RunStory story;
  story.folder = run.folder();
  story.recipe = run.recipe();
  story.is_script = run.is_script();
  story.processes = run.processes();
  for (std::size_t i = 0; i < story.processes.size(); ++i) {
    const bool last = i + 1 == story.processes.size();
    doctor::Cause cause =
        doctor::cause_of(story.processes[i], last && alive, doctor::system_mark(doctor::group_of(story.processes[i])));
    if (last)
      story.state = std::move(cause);
    else
      story.earlier.push_back(std::move(cause));
  }
  if (story.processes.empty()) {
    story.state = {.id = "unknown", .text = "nothing can be read from its log.jsonl", .is_death = false};
  } else {
    const auto& lines = story.processes.back();
    story.preset = text_at(lines.front(), {"preset"});
    const auto end = std::ranges::find_if(lines, [](const Json& line) { return text_at(line, {"kind"}) == "end"; });
    if (end != lines.end() && is_summary_of(run.summary(), *end)) story.summary = run.summary();
  }
  story.saved_step = run.newest_snapshot();
  story.accounts = accounts_of(story);
  story.ranks = ranks_of(story);
  story.blocks = blocks_of(story);
  story.findings = findings_of(story);
  return story;
}

RunStory read_story(const std::filesystem::path& folder) {
  const Run run(folder);
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored) && (run.is_there() || !run.processes().empty())) return story_of(run);
  throw UsageError(
      {printable(folder.string()) + (std::filesystem::exists(folder, ignored) ? " is not a run folder" : " does not exist"),
       "the words after the command", "name the folder of a run; to list the runs below ./runs: millrace runs"});
}

std::string shares_text(const std::vector<std::pair<std::string, double>>& accounts) {
  double all = 0;
  for (const auto& [name, seconds] : accounts) all += seconds;
  std::string text;
  for (const auto& [name, seconds] : accounts) {
    if (all > 0 && seconds / all >= 0.005) text += (text.empty() ? "" : ", ") + printable(name) + " " + percent(seconds / all);
  }
  return text;
}

}  // namespace millrace::runs
