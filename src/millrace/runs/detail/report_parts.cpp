#include "millrace/runs/detail/report_parts.h"

#include <algorithm>
#include <map>

#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/report/html.h"

namespace millrace::runs {
namespace {

std::string plain_text(const Json& value) {
  return value.is_string()         ? value.get<std::string>()
         : value.is_number_float() ? significant(value.get<double>(), 6)
                                   : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string time_html(const RunStory& run) {
  std::vector<report::Part> parts;
  for (const auto& [name, seconds] : run.accounts) parts.push_back({name, seconds, human_duration(seconds)});
  if (parts.empty() && run.summary.is_object() && run.summary.contains("shares") && run.summary["shares"].is_object()) {
    for (const auto& [name, share] : run.summary["shares"].items()) {
      if (share.is_number()) parts.push_back({name, share.get<double>(), ""});
    }
    std::ranges::stable_sort(parts, std::ranges::greater(), &report::Part::value);
  }
  return report::shares(parts);
}

double sum_of(const std::vector<std::pair<std::string, double>>& accounts) {
  double sum = 0;
  for (const auto& [name, seconds] : accounts) sum += seconds;
  return sum;
}

// The accounts, each with its largest share of any rank's time, sorted by this share, largest first. Accounts that are small on
// all ranks are left out.
std::vector<std::pair<std::string, double>> accounts_of_ranks(const RunStory& run) {
  constexpr std::size_t kMost = 16;  // largest number of accounts; only a damaged file has more
  constexpr double kLeast = 0.005;
  std::map<std::string, double> greatest;
  for (const auto& accounts : run.ranks) {
    const double all = sum_of(accounts);
    for (const auto& [name, seconds] : accounts) {
      if (seconds > 0 && seconds >= kLeast * all) greatest[name] = std::max(greatest[name], seconds / all);
    }
  }
  std::vector<std::pair<std::string, double>> shares(greatest.begin(), greatest.end());
  std::ranges::stable_sort(shares, std::ranges::greater(), &std::pair<std::string, double>::second);
  shares.resize(std::min(shares.size(), kMost));
  return shares;
}

// How each of several ranks spent its time.
std::string ranks_html(const RunStory& run) {
  constexpr std::size_t kShown = 16, kMost = 256;
  if (run.ranks.size() < 2) return "";
  const auto columns = accounts_of_ranks(run);
  std::vector<std::vector<std::string>> first = {{"rank", "time"}};
  for (const auto& [name, share] : columns) first.front().push_back(name);
  std::vector<std::vector<std::string>> rest = first;
  for (std::size_t i = 0; i < std::min(run.ranks.size(), kMost); ++i) {
    const std::map<std::string, double> accounts(run.ranks[i].begin(), run.ranks[i].end());
    const double all = sum_of(run.ranks[i]);
    std::vector<std::string> row = {std::to_string(i), human_duration(all)};
    for (const auto& [name, share] : columns) {
      const auto found = accounts.find(name);
      row.push_back(found != accounts.end() && all > 0 ? percent(found->second / all, 1) : "");
    }
    (i < kShown ? first : rest).push_back(std::move(row));
  }
  std::string html = report::table(first);
  if (rest.size() > 1)
    html += "<details><summary>" + std::to_string(rest.size() - 1) + " more ranks</summary>" + report::table(rest) + "</details>";
  if (run.ranks.size() > kMost)
    html += "<p class=\"note\">" + std::to_string(run.ranks.size() - kMost) + " more are in summary.json.</p>";
  return html + "<p class=\"note\">Shares of each rank's time; reduction: waiting for the other ranks and sending to them.</p>";
}

// The times of blocks in both passes, slowest block first.
std::string blocks_html(const RunStory& run) {
  constexpr std::size_t kMost = 16;
  double all = 0;
  for (const BlockTime& block : run.blocks) all += block.both();
  if (!(all > 0)) return "";
  const std::vector<BlockTime> blocks = longest_first(run.blocks);
  std::vector<std::vector<std::string>> first = {{"block", "forward", "backward", "of both"}}, rest = first;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockTime& block = blocks[i];
    (i < kMost ? first : rest)
        .push_back({block.name, human_duration(block.forward), human_duration(block.backward), percent(block.both() / all, 1)});
  }
  std::string html = report::table(first);
  if (rest.size() > 1)
    html +=
        "<details><summary>" + std::to_string(rest.size() - 1) + " more blocks</summary>" + report::table(rest) + "</details>";
  return html;
}

std::string memory_html(const RunStory& run) {
  std::vector<report::Part> parts;
  const Json& account = json_at(run.summary, {"memory", "account"});
  if (!account.is_object()) return "";
  for (const auto& [name, bytes] : account.items()) {
    if (name != "sum" && name != "peak" && bytes.is_number() && bytes.get<double>() > 0)
      parts.push_back({name, bytes.get<double>(), human_bytes(bytes.get<double>())});
  }
  std::ranges::stable_sort(parts, std::ranges::greater(), &report::Part::value);
  return report::shares(parts);
}

std::string two(const std::string& left, const std::string& left_title, const std::string& right,
                const std::string& right_title) {
  if (left.empty() && right.empty()) return "";
  const auto part = [](const std::string& title, const std::string& html) {
    return html.empty() ? std::string() : "<div>" + report::section(title, html) + "</div>";
  };
  return "<div class=\"two\">" + part(left_title, left) + part(right_title, right) + "</div>\n";
}

std::string plan_html(const RunStory& run) {
  const Json plan = Run(run.folder).plan();
  std::vector<std::vector<std::string>> rows = {{"what", "value", "why"}};
  for (const Json& choice : plan.is_array() ? plan : Json::array()) {
    if (choice.is_object())
      rows.push_back({text_at(choice, {"option"}), text_at(choice, {"value"}), text_at(choice, {"reason"})});
  }
  return report::table(rows);
}

void flatten(const Json& json, const std::string& at, std::map<std::string, std::string>& values) {
  if (!json.is_object()) {
    values[at] = plain_text(json);
    return;
  }
  const std::string above = at.empty() ? "" : at + ".";
  for (const auto& [key, value] : json.items()) flatten(value, above + key, values);
}

}  // namespace

std::map<std::string, std::string> config_values(const RunStory& run) {
  const Json config = Run(run.folder).config();
  std::map<std::string, std::string> values;
  if (config.is_object() && config.contains("values")) flatten(config["values"], "", values);
  return values;
}

namespace {

std::string config_html(const RunStory& run) {
  const Json config = Run(run.folder).config();
  if (!config.is_object() || !config.contains("values")) return "";
  std::vector<std::vector<std::string>> chosen = {{"key", "value", "from"}}, others = chosen;
  for (const auto& [key, value] : config_values(run)) {
    const std::string origin = config.contains("origins") ? text_at(config["origins"], {key}) : "";
    (origin.empty() || origin == "default" ? others : chosen).push_back({key, value, origin});
  }
  std::string html = report::table(chosen);
  if (others.size() > 1)
    html +=
        "<details><summary>" + std::to_string(others.size() - 1) + " defaults</summary>" + report::table(others) + "</details>";
  return html;
}

std::string machine_html(const RunStory& run) {
  std::vector<std::vector<std::string>> rows = {{"what", "version"}};
  if (run.summary.is_object() && run.summary.contains("versions") && run.summary["versions"].is_object()) {
    for (const auto& [name, value] : run.summary["versions"].items()) rows.push_back({name, plain_text(value)});
  }
  if (!run.processes.empty() && run.processes.back().front().contains("command")) {
    std::string words;
    const Json& command = run.processes.back().front()["command"];
    for (const Json& each : command.is_array() ? command : Json::array()) words += (words.empty() ? "" : " ") + plain_text(each);
    if (!words.empty()) rows.push_back({"command", words});
  }
  return report::table(rows);
}

}  // namespace

ReportParts parts_of(const RunStory& run) {
  return {.before = two(time_html(run), "Where the time went", memory_html(run), "What memory held at its peak") +
                    report::section("Ranks", ranks_html(run)) +
                    report::section("Forward and backward by block of the model", blocks_html(run)),
          .after = report::section("The plan", plan_html(run)) + report::section("The config", config_html(run)) +
                   report::section("Versions", machine_html(run))};
}

}  // namespace millrace::runs
