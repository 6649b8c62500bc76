#include "millrace/cli/doctor_forms.h"

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/cli/shared/text.h"
#include "millrace/runs/run_story.h"

namespace millrace::cli {
namespace {

Json to_json(const doctor::Cause& cause) {
  return {{"id", cause.id}, {"text", cause.text}, {"step", cause.step}, {"died", cause.is_death}};
}

Json json_of(const runs::RunStory& story) {
  Json json = {{"run", story.folder.string()},  {"kind", story.is_script ? "script" : "recipe"},
               {"recipe", story.recipe},        {"preset", story.preset},
               {"state", to_json(story.state)}, {"earlier", Json::array()},
               {"accounts", Json::object()},    {"findings", story.findings}};
  for (const doctor::Cause& cause : story.earlier) json["earlier"].push_back(to_json(cause));
  for (const auto& [name, seconds] : story.accounts) json["accounts"][name] = seconds;
  if (!story.blocks.empty()) json["blocks"] = to_json(story.blocks);
  for (const auto& accounts : story.ranks) {
    Json rank = {{"rank", json["ranks"].size()}, {"accounts", Json::object()}};
    for (const auto& [name, seconds] : accounts) rank["accounts"][name] = seconds;
    json["ranks"].push_back(std::move(rank));
  }
  return json;
}

double sum_of(const runs::RunStory& story) {
  double sum = 0;
  for (const auto& [name, seconds] : story.accounts) sum += seconds;
  return sum;
}

// A text such as "12 s, longest in backward, 43 % of its loop". `accounts` must be sorted, the largest first.
std::string rank_text(const std::vector<std::pair<std::string, double>>& accounts) {
  double all = 0, loop = 0;
  const std::pair<std::string, double>* largest = nullptr;
  for (const auto& account : accounts) {
    all += account.second;
    if (account.first == "startup" || account.first == "trials") continue;
    loop += account.second;
    if (largest == nullptr) largest = &account;
  }
  if (largest == nullptr || loop <= 0) return human_duration(all);
  return human_duration(all) + ", longest in " + printable(largest->first) + ", " + percent(largest->second / loop) +
         " of its loop";
}

void add_ranks(const runs::RunStory& story, std::vector<std::vector<std::string>>& rows) {
  constexpr std::size_t kMostRanks = 16;
  const std::size_t shown = std::min(story.ranks.size(), kMostRanks);
  for (std::size_t i = 0; i < shown; ++i) rows.push_back({"rank " + std::to_string(i), rank_text(story.ranks[i])});
  if (story.ranks.size() > shown)
    rows.push_back(
        {"ranks", "and " + with_commas(static_cast<std::int64_t>(story.ranks.size() - shown)) + " more: --json has them all"});
}

std::string finding_text(const Json& finding) {
  const auto word = [&](const char* key) {
    return finding.contains(key) && finding[key].is_string() ? printable(finding[key].get<std::string>()) : std::string();
  };
  std::string text = word("id") + "\n    " + word("what") + "\n    next  " + word("remedy");
  if (finding.contains("gain") && finding["gain"].is_number())
    text += "; about " + percent(finding["gain"].get<double>()) + " less time";
  if (!word("page").empty()) text += "\n    see   " + word("page");
  return text;
}

void print_text(const runs::RunStory& story) {
  std::vector<std::vector<std::string>> rows = {
      {"run", printable(story.folder.string()) +
                  (story.recipe.empty() ? "" : (story.is_script ? ", your script " : ", recipe ") + printable(story.recipe)) +
                  (story.preset.empty() ? "" : ", preset " + printable(story.preset))},
      {"state", printable(story.state.text)}};
  constexpr std::size_t kMostEarlier = 5;
  const std::size_t left_out = story.earlier.size() > kMostEarlier ? story.earlier.size() - kMostEarlier : 0;
  if (left_out > 0) rows.push_back({"before", with_commas(static_cast<std::int64_t>(left_out)) + " more processes"});
  for (std::size_t i = left_out; i < story.earlier.size(); ++i) rows.push_back({"before", printable(story.earlier[i].text)});
  if (story.state.is_death && !story.is_script) {
    rows.push_back({"saved", story.saved_step ? "step " + with_commas(*story.saved_step) + ": the same command resumes from there"
                                              : "nothing was saved yet: the same command starts over"});
  }
  rows.push_back(
      {"time", story.accounts.empty()
                   ? "its log has no accounts of time, because the run is by an older Millrace or ended before its first log line"
                   : human_duration(sum_of(story)) + ": " + runs::shares_text(story.accounts)});
  add_ranks(story, rows);
  if (!story.blocks.empty()) rows.push_back({"blocks", "of forward and backward: " + printable(to_text(story.blocks))});
  print(table(rows));
  if (story.findings.is_null())
    return print(
        "no findings were recorded, because the run is by an older Millrace, ended too early, or had log.doctor=false\n");
  if (story.findings.empty()) return print(story.state.is_death ? "nothing else to mend\n" : "nothing to mend\n");
  constexpr std::size_t kMost = 3;
  for (std::size_t i = 0; i < std::min(story.findings.size(), kMost); ++i)
    print(std::to_string(i + 1) + "   " + finding_text(story.findings[i]) + "\n");
  if (story.findings.size() > kMost)
    print("and " + std::to_string(story.findings.size() - kMost) + " more: --json has them all\n");
}

}  // namespace

int doctor_run(const std::filesystem::path& folder, DoctorOutput output, bool strict) {
  const runs::RunStory story = runs::read_story(folder);
  if (output == DoctorOutput::json)
    print_json(json_of(story));
  else
    print_text(story);
  constexpr int kFound = 3;
  const bool found = story.state.is_death || (story.findings.is_array() && !story.findings.empty());
  return strict && found ? kFound : 0;
}

}  // namespace millrace::cli
