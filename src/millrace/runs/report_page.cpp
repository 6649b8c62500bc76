#include "millrace/runs/report_page.h"

#include <algorithm>
#include <ctime>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/report/html.h"
#include "millrace/runs/detail/report_curves.h"
#include "millrace/runs/detail/report_head.h"
#include "millrace/runs/detail/report_parts.h"
#include "millrace/runs/detail/report_pictures.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::runs {
namespace {

using report::escaped;

// kMostPage: bytes of a page; kFrame: bytes of its style and script
constexpr std::size_t kMostPage = 1'950'000, kFrame = 40'000;
constexpr std::size_t kShownCurves = 12;

// The runs' names with their colours: a legend for all diagrams.
std::string legend_html(std::span<const std::string> names) {
  std::string html;
  for (std::size_t i = 0; i < names.size() && names.size() > 1; ++i) {
    const std::string number = std::to_string(i);
    html += "<button type=\"button\" class=\"run\" aria-pressed=\"true\" data-run=\"" + number +
            "\"><svg class=\"key\" viewBox=\"0 0 16 4\"><path class=\"c" + std::to_string(i % report::kColours) +
            "\" d=\"M0 2L16 2\"/></svg>" + escaped(names[i]) + "</button>";
  }
  return "<div class=\"controls\" id=\"controls\">" + html + "</div>";
}

// Gives all diagrams the same range of steps, so that a step is at the same place in each diagram. Returns the number of series
// in all diagrams.
std::size_t put_on_one_axis(CurvesOfRuns& curves) {
  constexpr double kLargest = 1e15;
  std::size_t series = 0;
  std::pair<double, double> steps = {kLargest, -kLargest};
  for (auto* group : {&curves.shown, &curves.quiet}) {
    for (const report::Curve& curve : *group) {
      series += curve.series.size();
      for (const report::Series& each : curve.series) {
        if (each.points.empty()) continue;
        steps.first = std::min(steps.first, each.points.front().x);
        steps.second = std::max(steps.second, each.points.back().x);
      }
    }
  }
  for (auto* group : {&curves.shown, &curves.quiet}) {
    for (report::Curve& curve : *group) curve.steps = steps;
  }
  return series;
}

std::string folded(const std::string& html, std::size_t count, const std::string& of_what) {
  return html.empty() ? ""
                      : "<details><summary>" + std::to_string(count) + of_what + "</summary><div class=\"grid2\">" + html +
                            "</div></details>";
}

std::string curves_html(std::span<const RunStory> runs, std::span<const Validations> validations,
                        std::span<const std::string> names) {
  CurvesOfRuns curves = curves_of(runs, validations, names);
  const std::size_t series = put_on_one_axis(curves);
  const std::size_t most = report::points_for(series);
  std::string first, rest, quiet;
  std::size_t drawn = 0, drawn_quiet = 0;
  for (const report::Curve& curve : curves.shown) {
    const std::string html = report::to_html(curve, most);
    if (!html.empty()) (drawn++ < kShownCurves ? first : rest) += html;
  }
  for (const report::Curve& curve : curves.quiet) {
    const std::string html = report::to_html(curve, most);
    drawn_quiet += html.empty() ? 0 : 1;
    quiet += html;
  }
  if (first.empty() && quiet.empty()) return "";
  const bool marks_best = std::ranges::any_of(validations, [](const Validations& each) { return each.best.has_value(); });
  return legend_html(names) + "<div class=\"grid2\">" + first + "</div>" +
         folded(rest, drawn - std::min(drawn, kShownCurves), " more curves") +
         folded(quiet, drawn_quiet, " diagrams of quiet metrics") + "<p class=\"note\">By step." +
         (marks_best ? std::string(" A ring marks the best value of a metric") +
                           (runs.size() == 1
                                ? ", and the dashed line marks the step of the best " + escaped(validations.front().judged) + "."
                                : ".")
                     : "") +
         "<span class=\"by-hand\"> Drag to look at a part, double-click for all of it.</span></p>";
}

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &local)};
}

std::string title_of(std::span<const RunStory> runs) {
  if (runs.size() > 1) return std::to_string(runs.size()) + " runs";
  const RunStory& run = runs.front();
  if (run.is_script) return "your script " + run.recipe;
  return (run.recipe.empty() ? "run" : run.recipe) + (run.preset.empty() ? "" : ", preset " + run.preset);
}

}  // namespace

std::string report_page(std::span<const RunStory> runs, int reload_s) {
  const std::vector<std::string> names = names_of(runs);
  std::vector<Validations> validations;
  for (const RunStory& run : runs) validations.push_back(validations_of(run));
  const std::string title = title_of(runs);
  std::string body = "<h1>" + escaped(title) + "</h1>\n<p class=\"sub\">" +
                     escaped(joined(runs, ", ", [](const RunStory& run) { return run.folder.string(); })) +
                     (reload_s > 0 ? " <span class=\"live\">live, as of " + clock_text() + "</span>" : "") + "</p>\n" +
                     head_html(runs, validations, names) + report::section("Curves", curves_html(runs, validations, names));
  std::vector<ReportParts> parts;
  std::size_t size = body.size() + kFrame;
  for (const RunStory& run : runs) {
    parts.push_back(parts_of(run));
    size += parts.back().before.size() + parts.back().after.size();
  }
  const std::string pictures = report::section("Pictures", pictures_html(runs, names, size < kMostPage ? kMostPage - size : 0));
  if (runs.size() == 1) {
    body += parts.front().before + pictures + parts.front().after;
  } else {
    body += pictures;
    for (std::size_t i = 0; i < runs.size(); ++i)
      body += "<details><summary>" + escaped(names[i]) + ": time, memory, plan, config</summary>" + parts[i].before +
              parts[i].after + "</details>\n";
  }
  return report::page(title, body, reload_s);
}

std::filesystem::path write_report(const std::filesystem::path& run) {
  const RunStory story = read_story(run);
  std::filesystem::path file = run / run_files::kReport;
  write_atomically(Fs::real(), file, report_page({&story, 1}));
  return file;
}

}  // namespace millrace::runs
