#include "millrace/runs/detail/report_head.h"

#include <algorithm>
#include <map>
#include <set>

#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/metrics/figure.h"
#include "millrace/report/html.h"
#include "millrace/runs/detail/report_parts.h"

namespace millrace::runs {
namespace {

using report::escaped;

struct Tile {
  std::string name, value;
  std::string note = {};  // shown below the name; left out in a table
};

std::string at_step(double step) { return "at step " + with_commas(static_cast<std::int64_t>(step)); }

// Adds first the judged metric with its step, then a few other metrics, last the terms of a loss.
void add_metrics(std::vector<Tile>& tiles, const Validations& validations, std::size_t most) {
  std::vector<MetricStory> metrics = validations.metrics;
  std::stable_partition(metrics.begin(), metrics.end(), [&](const MetricStory& metric) {
    return metric.name == validations.judged || !metric.name.starts_with("val_") || metric.name.find('/') == std::string::npos;
  });
  for (const MetricStory& metric : metrics) {
    const auto text = [&](double value) { return metrics::figure_of(metric.name, value); };
    const bool is_judged = metric.name == validations.judged;
    if ((metric.quiet && !is_judged) || tiles.size() >= most) continue;
    if (metric.best) {
      Tile tile{.name = metric.name + ", best", .value = text(metric.best->value), .note = at_step(metric.best->step)};
      if (metric.at_best && metric.best->step != validations.best->step)
        tile.note += "; " + text(*metric.at_best) + " at the best step";
      if (!metric.last) tile.note += "; the last value is not a number";
      tiles.push_back(std::move(tile));
      if (is_judged) tiles.push_back({"at step", with_commas(static_cast<std::int64_t>(metric.best->step))});
    } else if (metric.at_best) {
      tiles.push_back({metric.name + ", at the best step", text(*metric.at_best)});
    } else if (!metric.last) {
      tiles.push_back({metric.name + ", last", "not a number"});
    }
  }
}

std::vector<Tile> tiles_of(const RunStory& run, const Validations& validations) {
  constexpr std::size_t kMetrics = 5;
  std::vector<Tile> tiles;
  add_metrics(tiles, validations, kMetrics);
  const auto add = [&](const std::string& name, std::optional<double> value, const auto& text) {
    if (value) tiles.push_back({name, text(*value)});
  };
  const Json& summary = run.summary;
  add("loss, last", number_at(summary, {"loss", "last"}), [](double v) { return figure(v); });
  if (const std::string text = text_at(summary, {"loss", "last"}); !text.empty()) tiles.push_back({"loss, last", text});
  tiles.push_back({"steps", with_commas(run.state.step)});
  add("step, median", number_at(summary, {"step_ms", "p50"}), [](double v) { return significant(v, 3) + " ms"; });
  add("samples a second", number_at(summary, {"samples_per_s"}), [](double v) { return human_rate(v); });
  add("peak memory", number_at(summary, {"peak_memory_bytes"}), [](double v) { return human_bytes(v); });
  add("wall time", number_at(summary, {"wall_s"}), [](double v) { return human_duration(v); });
  return tiles;
}

std::string tiles_html(const RunStory& run, const Validations& validations) {
  std::string html = "<div class=\"figures\">";
  for (const Tile& tile : tiles_of(run, validations)) {
    if (tile.name == "at step") continue;  // the tile of the judged metric already shows the step in its note
    html += "<div><b>" + escaped(tile.value) + "</b><span>" + escaped(tile.name) + "</span>" +
            (tile.note.empty() ? "" : "<i>" + escaped(tile.note) + "</i>") + "</div>";
  }
  return html + "</div>\n";
}

std::string runs_table(std::span<const RunStory> runs, std::span<const Validations> validations,
                       std::span<const std::string> names) {
  std::vector<std::vector<std::string>> rows = {{"run"}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string> row = {names[i]};
    for (const auto& [name, value, note] : tiles_of(runs[i], validations[i])) {
      auto at = std::ranges::find(rows.front(), name);
      if (at == rows.front().end()) at = rows.front().insert(rows.front().end(), name);
      row.resize(std::max<std::size_t>(row.size(), static_cast<std::size_t>(at - rows.front().begin()) + 1));
      row[static_cast<std::size_t>(at - rows.front().begin())] = value;
    }
    rows.push_back(std::move(row));
  }
  for (auto& row : rows) row.resize(rows.front().size());
  return report::table(rows);
}

// A table of the config keys that have different values, with a column for each run.
std::string differences_html(std::span<const RunStory> runs, std::span<const std::string> names) {
  constexpr std::size_t kShown = 20;
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (auto& [key, value] : config_values(runs[i])) {
      auto& of_runs = values[key];
      of_runs.resize(runs.size(), "-");
      of_runs[i] = std::move(value);
    }
  }
  values.erase("run.dir");  // removed, because it differs between any two runs
  std::erase_if(values, [](const auto& each) {
    return std::ranges::all_of(each.second, [&](const std::string& value) { return value == each.second.front(); });
  });
  if (values.empty()) return "<p class=\"note\">Their configs are the same.</p>\n";
  std::vector<std::vector<std::string>> first = {{"key"}};
  first.front().insert(first.front().end(), names.begin(), names.end());
  std::vector<std::vector<std::string>> rest = first;
  for (const auto& [key, of_runs] : values) {
    std::vector<std::string> row = {key};
    row.insert(row.end(), of_runs.begin(), of_runs.end());
    (first.size() <= kShown ? first : rest).push_back(std::move(row));
  }
  std::string html = report::table(first);
  if (rest.size() > 1)
    html += "<details><summary>" + std::to_string(rest.size() - 1) + " more keys</summary>" + report::table(rest) + "</details>";
  return html;
}

// Lists metrics whose definition was corrected between the runs, or between the processes of one run.
std::string versions_html(std::span<const RunStory> runs) {
  std::map<std::string, std::set<std::int64_t>> versions;
  for (const RunStory& run : runs) {
    for (const auto& lines : run.processes) {
      for (const Json& line : lines) {
        if (text_at(line, {"kind"}) != "validation") continue;
        const Json mended = line.value("metric_versions", Json::object());
        for (const auto& [name, value] : line.items()) {
          if (!value.is_number()) continue;
          const bool is_mended = mended.is_object() && mended.contains(name) && mended[name].is_number_integer();
          versions[name].insert(is_mended ? mended[name].get<std::int64_t>() : 1);
        }
      }
    }
  }
  std::erase_if(versions, [](const auto& each) { return each.second.size() < 2; });
  if (versions.empty()) return "";
  return "<p class=\"note\">These metrics are not the same measure throughout: " +
         escaped(joined(versions, ", ",
                        [](const auto& each) {
                          return each.first + " (versions " +
                                 joined(each.second, " and ", [](std::int64_t v) { return std::to_string(v); }) + ")";
                        })) +
         ". Values of different versions can't be compared; CHANGELOG.md says what each version changed, and millrace eval "
         "--from RUN measures a run again.</p>\n";
}

std::string remedy_html(const Json& finding) {
  const std::string key = text_at(finding, {"key"}), change = text_at(finding, {"change"}), where = text_at(finding, {"where"});
  if (!change.empty()) return "<code>" + escaped(change) + "</code>" + (where.empty() ? "" : " in " + escaped(where));
  if (key.empty()) return escaped(text_at(finding, {"remedy"}));
  return "<code>--" + escaped(key) + "=" + escaped(text_at(finding, {"value"})) + "</code>";
}

// A sentence about the account that took most of the loop's time.
std::string busiest_html(const RunStory& run) {
  const auto is_of_loop = [](const auto& account) { return account.first != "startup" && account.first != "trials"; };
  const auto busiest = std::ranges::find_if(run.accounts, is_of_loop);
  if (busiest == run.accounts.end()) return "";
  if (busiest->first == "others") return " Other programs took the largest part of its time.";
  double loop = 0;
  for (const auto& account : run.accounts) loop += is_of_loop(account) ? account.second : 0;
  return (busiest->second > loop / 2 ? " Most" : " The largest part") + std::string(" of its time went into <b>") +
         escaped(busiest->first) + "</b>.";
}

std::string verdict(const RunStory& run, const std::string& run_name) {
  const bool found = run.findings.is_array() && !run.findings.empty();
  std::string state = run.state.text;
  if (!state.empty() && state.front() >= 'a' && state.front() <= 'z')
    state.front() = static_cast<char>(state.front() - 'a' + 'A');
  const std::string name = run_name.empty() ? "" : "<b>" + escaped(run_name) + "</b> ";
  std::string html =
      std::string("<div class=\"verdict") + (found || run.state.is_death ? " mend" : "") + "\"><p>" + name + escaped(state) + ".";
  if (run.state.is_death && run.saved_step) html += " The newest snapshot is of step " + with_commas(*run.saved_step) + ".";
  html += busiest_html(run);
  if (run.findings.is_array() && !found) html += " Nothing was found that slows the run down.";
  html += "</p>";
  if (found) html += "<ol>";
  for (const Json& finding : found ? run.findings : Json::array()) {
    html += "<li><b>" + escaped(text_at(finding, {"id"})) + "</b>: " + escaped(text_at(finding, {"what"})) + ".<br>";
    html += remedy_html(finding);
    if (const auto gain = number_at(finding, {"gain"})) {
      html += " <span class=\"gain\">about " + percent(*gain) + " less time</span>";
      const auto low = number_at(finding, {"gain_low"}), high = number_at(finding, {"gain_high"});
      if (low && high) html += " <span class=\"note\">(" + percent(*low) + " to " + percent(*high) + ")</span>";
    }
    html += "</li>";
  }
  return html + (found ? "</ol>" : "") + "</div>\n";
}

}  // namespace

std::vector<std::string> names_of(std::span<const RunStory> runs) {
  std::vector<std::string> names;
  for (const RunStory& run : runs) {
    const std::string name = run.folder.filename().string();
    const bool is_own = std::ranges::count(runs, name, [](const RunStory& each) { return each.folder.filename().string(); }) == 1;
    names.push_back(is_own && !name.empty() ? name : run.folder.string());
  }
  return names;
}

std::string head_html(std::span<const RunStory> runs, std::span<const Validations> validations,
                      std::span<const std::string> names) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i) html += verdict(runs[i], runs.size() > 1 ? names[i] : "");
  if (runs.size() == 1) return html + tiles_html(runs.front(), validations.front()) + versions_html(runs);
  return html + runs_table(runs, validations, names) + versions_html(runs) +
         report::section("What differs in their configs", differences_html(runs, names));
}

}  // namespace millrace::runs
