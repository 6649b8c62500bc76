#include "millrace/runs/report_page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "millrace/base/error.h"
#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/input_file.h"
#include "millrace/metrics/figure.h"
#include "millrace/report/html.h"
#include "millrace/runs/detail/report_curves.h"
#include "millrace/runs/run_row.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::runs {
namespace {

using report::escaped;

constexpr std::uint64_t kMostPicture = 400'000;                // bytes
constexpr std::size_t kMostPage = 1'950'000, kFrame = 20'000;  // bytes of the whole page, and of its style and script
constexpr std::size_t kShownCurves = 12;

std::string text_of(const std::filesystem::path& path, std::uint64_t most) {
  try {
    const InputFile file(path);
    if (file.size() > most) return "";
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
  } catch (const DataError&) {
    return "";
  }
}

std::string plain_text(const Json& value) {
  return value.is_string()         ? value.get<std::string>()
         : value.is_number_float() ? significant(value.get<double>(), 6)
                                   : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The figures of a run: name and value.
std::vector<std::pair<std::string, std::string>> figures_of(const RunStory& run) {
  std::vector<std::pair<std::string, std::string>> figures;
  const auto add = [&](const std::string& name, std::optional<double> value, const auto& text) {
    if (value) figures.emplace_back(name, text(*value));
  };
  const Json& summary = run.summary;
  figures.emplace_back("steps", with_commas(run.state.step));
  add("step, median", number_at(summary, {"step_ms", "p50"}), [](double v) { return significant(v, 3) + " ms"; });
  add("samples a second", number_at(summary, {"samples_per_s"}), [](double v) { return human_rate(v); });
  add("loss, last", number_at(summary, {"loss", "last"}), [](double v) { return figure(v); });
  for (const RunRow::Metric& metric : row_of(Run(run.folder)).metrics) {
    if (figures.size() < 7 && metric.best)
      figures.emplace_back(metric.name + ", best", metrics::figure_of(metric.name, *metric.best));
  }
  add("peak memory", number_at(summary, {"peak_memory_bytes"}), [](double v) { return human_bytes(v); });
  add("wall time", number_at(summary, {"wall_s"}), [](double v) { return human_duration(v); });
  return figures;
}

std::string figures_html(std::span<const RunStory> runs) {
  if (runs.size() == 1) {
    std::string html = "<div class=\"figures\">";
    for (const auto& [name, value] : figures_of(runs.front()))
      html += "<div><b>" + escaped(value) + "</b><span>" + escaped(name) + "</span></div>";
    return html + "</div>\n";
  }
  std::vector<std::vector<std::string>> rows = {{"run"}};
  for (const RunStory& run : runs) {
    std::vector<std::string> row = {run.folder.filename().string()};
    row.resize(rows.front().size());
    for (const auto& [name, value] : figures_of(run)) {
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

// Names the metrics whose definition was corrected between the runs, or between the processes of a run.
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
  return "<p class=\"note\">Not the same measure all through: " +
         escaped(joined(versions, ", ",
                        [](const auto& each) {
                          return each.first + " (versions " +
                                 joined(each.second, " and ", [](std::int64_t v) { return std::to_string(v); }) + ")";
                        })) +
         ". Figures of two versions do not compare; CHANGELOG.md says what a version changed, and millrace eval --from RUN "
         "measures a run anew.</p>\n";
}

std::string verdict(const RunStory& run, bool named) {
  const bool found = run.findings.is_array() && !run.findings.empty();
  std::string state = run.state.text;
  if (!state.empty() && state.front() >= 'a' && state.front() <= 'z')
    state.front() = static_cast<char>(state.front() - 'a' + 'A');
  const std::string name = named ? "<b>" + escaped(run.folder.filename().string()) + "</b> " : "";
  std::string html =
      std::string("<div class=\"verdict") + (found || run.state.is_death ? " mend" : "") + "\"><p>" + name + escaped(state) + ".";
  if (run.state.is_death && run.saved_step) html += " The newest snapshot is of step " + with_commas(*run.saved_step) + ".";
  const auto busiest = std::ranges::find_if(
      run.accounts, [](const auto& account) { return account.first != "startup" && account.first != "trials"; });
  if (busiest != run.accounts.end()) {
    html += busiest->first == "others" ? " Other programs had more of its time than anything else."
                                       : " Most of its time went into <b>" + escaped(busiest->first) + "</b>.";
  }
  if (run.findings.is_array() && !found) html += " Nothing was found that holds it back.";
  html += "</p>";
  if (found) html += "<ol>";
  for (const Json& finding : found ? run.findings : Json::array()) {
    html += "<li><b>" + escaped(text_at(finding, {"id"})) + "</b>: " + escaped(text_at(finding, {"what"})) + ".<br>";
    html += text_at(finding, {"key"}).empty()
                ? escaped(text_at(finding, {"remedy"}))
                : "<code>--" + escaped(text_at(finding, {"key"})) + "=" + escaped(text_at(finding, {"value"})) + "</code>";
    if (const auto gain = number_at(finding, {"gain"})) {
      html += " <span class=\"gain\">about " + percent(*gain) + " less time</span>";
      const auto low = number_at(finding, {"gain_low"}), high = number_at(finding, {"gain_high"});
      if (low && high) html += " <span class=\"note\">(" + percent(*low) + " to " + percent(*high) + ")</span>";
    }
    html += "</li>";
  }
  return html + (found ? "</ol>" : "") + "</div>\n";
}

std::string curves_html(std::span<const RunStory> runs) {
  const auto curves = curves_of(runs);
  std::size_t series = 0;
  for (const report::Curve& curve : curves) series += curve.series.size();
  std::string first, rest;
  std::size_t drawn = 0;
  for (const report::Curve& curve : curves) {
    const std::string html = report::to_html(curve, report::points_for(series));
    if (!html.empty()) (drawn++ < kShownCurves ? first : rest) += html;
  }
  if (first.empty()) return "";
  const std::string more = rest.empty() ? ""
                                        : "<details><summary>" + std::to_string(drawn - kShownCurves) +
                                              " more curves</summary><div class=\"grid2\">" + rest + "</div></details>";
  return "<div class=\"grid2\">" + first + "</div>" + more +
         "<p class=\"note by-hand\">By step. Drag to look at a part, double-click for all of it.</p>";
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

// The accounts and the largest share that each has of a rank's time, the largest first. Accounts that are small on all ranks are
// left out.
std::vector<std::pair<std::string, double>> accounts_of_ranks(const RunStory& run) {
  constexpr std::size_t kMost = 16;  // a run has fewer accounts, but a damaged file may have more
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

// How each rank spent its time. "" if there is only one rank.
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

// The time of each block in both passes, the slowest block first.
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
  const Json account = run.summary.is_object() ? run.summary.value("/memory/account"_json_pointer, Json()) : Json();
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

// As many pictures as fit into `most` bytes.
std::string pictures_html(const RunStory& run, std::size_t most) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator entry(run.folder / run_files::kPictures, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".png") && run_files::step_of_picture(std::string(run_files::kPictures) + "/" + name) < 0)
      files.push_back(entry->path());
  }
  std::ranges::sort(files);
  std::string html, left_out;
  std::size_t sum = 0;
  for (const auto& file : files) {
    const std::string bytes = text_of(file, kMostPicture);
    const std::string name = file.stem().string();
    const std::size_t size = (bytes.size() + 2) / 3 * 4 + 3 * name.size() + 200;
    if (bytes.size() < 8 || !std::string_view(bytes).starts_with("\x89PNG") || sum + size > most) {
      left_out += (left_out.empty() ? "" : ", ") + name;
      continue;
    }
    sum += size;
    html += "<figure><figcaption><b>" + escaped(name) + "</b></figcaption><img alt=\"" + escaped(name) +
            "\" src=\"data:image/png;base64," + report::base64(bytes) + "\"></figure>";
  }
  if (!html.empty()) html = "<div class=\"pictures\">" + html + "</div>";
  if (!left_out.empty()) html += "<p class=\"note\">Too large for this page, in the run's folder: " + escaped(left_out) + ".</p>";
  return html;
}

void flatten(const Json& json, const std::string& at, std::map<std::string, std::string>& values) {
  if (!json.is_object()) {
    values[at] = plain_text(json);
    return;
  }
  const std::string above = at.empty() ? "" : at + ".";
  for (const auto& [key, value] : json.items()) flatten(value, above + key, values);
}

std::string config_html(const RunStory& run) {
  const Json config = Run(run.folder).config();
  if (!config.is_object() || !config.contains("values")) return "";
  std::map<std::string, std::string> values;
  flatten(config["values"], "", values);
  std::vector<std::vector<std::string>> chosen = {{"key", "value", "from"}}, others = chosen;
  for (const auto& [key, value] : values) {
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

// The sections of a run except the curves: before and after its pictures, which get the bytes that the sections leave.
struct Details {
  std::string before, after;
};

Details details_of(const RunStory& run) {
  return {.before = two(time_html(run), "Where the time went", memory_html(run), "What memory held at its peak") +
                    report::section("Ranks", ranks_html(run)) +
                    report::section("Forward and backward by block of the model", blocks_html(run)),
          .after = report::section("The plan", plan_html(run)) + report::section("The config", config_html(run)) +
                   report::section("Versions", machine_html(run))};
}

std::string title_of(std::span<const RunStory> runs) {
  if (runs.size() > 1) return std::to_string(runs.size()) + " runs";
  const RunStory& run = runs.front();
  return (run.recipe.empty() ? "run" : run.recipe) + (run.preset.empty() ? "" : ", preset " + run.preset);
}

}  // namespace

std::string report_page(std::span<const RunStory> runs) {
  const std::string title = title_of(runs);
  std::string body = "<h1>" + escaped(title) + "</h1>\n<p class=\"sub\">";
  for (std::size_t i = 0; i < runs.size(); ++i) body += (i == 0 ? "" : ", ") + escaped(runs[i].folder.string());
  body += "</p>\n";
  for (const RunStory& run : runs) body += verdict(run, runs.size() > 1);
  body += figures_html(runs);
  body += versions_html(runs);
  body += report::section("Curves", curves_html(runs));
  std::vector<Details> details;
  std::size_t size = body.size() + kFrame;
  for (const RunStory& run : runs) {
    details.push_back(details_of(run));
    size += details.back().before.size() + details.back().after.size();
  }
  const std::size_t room = size < kMostPage ? (kMostPage - size) / runs.size() : 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string html =
        details[i].before + report::section("Pictures of the last validation", pictures_html(runs[i], room)) + details[i].after;
    body += runs.size() == 1 ? html
                             : "<details><summary>" + escaped(runs[i].folder.string()) +
                                   ": time, memory, pictures, plan, config</summary>" + html + "</details>\n";
  }
  return report::page(title, body);
}

std::filesystem::path write_report(const std::filesystem::path& run) {
  const RunStory story = read_story(run);
  std::filesystem::path file = run / run_files::kReport;
  write_atomically(Fs::real(), file, report_page({&story, 1}));
  return file;
}

}  // namespace millrace::runs
