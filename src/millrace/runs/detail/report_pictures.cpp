#include "millrace/runs/detail/report_pictures.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/report/html.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace::runs {
namespace {

namespace fs = std::filesystem;

using report::escaped;

constexpr std::uint64_t kMostPicture = 400'000;  // bytes
constexpr std::int64_t kLatest = -1;             // the step of a picture that has no step in its file name

// The files of one picture of one run, in the order of the steps at which the picture was kept. The step of a file without a
// step in its name is kLatest.
using Steps = std::map<std::int64_t, fs::path>;
struct Shown {
  std::string name;
  std::size_t run = 0;
  Steps files;
  std::map<std::int64_t, std::string> images = {};  // images in base64, by step
};

std::string png_in(const fs::path& path) {
  try {
    const InputFile file(path);
    if (file.size() > kMostPicture) return "";
    std::string bytes(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(bytes)));
    return std::string_view(bytes).starts_with("\x89PNG") ? bytes : "";
  } catch (const DataError&) {
    return "";
  }
}

// The pictures of all runs, sorted by name, then by run.
std::vector<Shown> pictures_of(std::span<const RunStory> runs) {
  std::map<std::pair<std::string, std::size_t>, Steps> found;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::error_code error;
    for (fs::directory_iterator entry(runs[run].folder / run_files::kPictures, error);
         !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      if (!file.ends_with(".png")) continue;
      const std::int64_t step = run_files::step_of_picture(std::string(run_files::kPictures) + "/" + file);
      const std::string name = step < 0 ? entry->path().stem().string() : file.substr(0, file.rfind(".step-"));
      found[{name, run}][std::max(step, kLatest)] = entry->path();
    }
  }
  std::vector<Shown> all;
  for (auto& [key, files] : found) {
    if (files.size() > 1) files.erase(kLatest);  // dropped, because this file equals the picture of the newest step
    all.push_back({.name = key.first, .run = key.second, .files = std::move(files)});
  }
  return all;
}

// The order in which pictures are put into the page: first the newest step, then the first step, then again and again the step
// that halves the widest gap.
std::vector<std::int64_t> by_importance(const std::set<std::int64_t>& steps) {
  std::vector<std::int64_t> left(steps.begin(), steps.end()), order;
  const auto take = [&](std::vector<std::int64_t>::iterator which) {
    order.push_back(*which);
    left.erase(which);
  };
  if (!left.empty()) take(std::prev(left.end()));
  if (!left.empty()) take(left.begin());
  while (!left.empty()) {
    const auto nearest = [&](std::int64_t step) {
      return std::ranges::min(order, {}, [step](std::int64_t taken) { return std::abs(taken - step); });
    };
    take(std::ranges::max_element(left, {}, [&](std::int64_t step) { return std::abs(nearest(step) - step); }));
  }
  return order;
}

struct LeftOut {
  std::set<std::string> names;  // names of pictures whose newest step did not fit
  std::size_t earlier = 0;      // number of pictures of earlier steps that did not fit
};

// Embeds the newest step of each picture first, then the earlier steps of all pictures in the order of by_importance().
LeftOut embed(std::vector<Shown>& pictures, std::size_t most) {
  LeftOut left_out;
  std::set<std::int64_t> steps;
  std::size_t sum = 0;
  const auto put = [&](Shown& picture, std::int64_t step) {
    const auto file = picture.files.find(step);
    if (file == picture.files.end() || picture.images.contains(step)) return true;
    const std::string bytes = png_in(file->second);
    const std::size_t size = (bytes.size() + 2) / 3 * 4 + 3 * picture.name.size() + 200;
    if (bytes.empty() || sum + size > most) return false;
    sum += size;
    picture.images[step] = report::base64(bytes);
    return true;
  };
  for (Shown& picture : pictures) {
    if (!put(picture, picture.files.rbegin()->first)) left_out.names.insert(picture.name);
    for (const auto& [step, file] : picture.files) steps.insert(step);
  }
  for (const std::int64_t step : by_importance(steps)) {
    for (Shown& picture : pictures) {
      if (!picture.images.empty() && !put(picture, step)) ++left_out.earlier;
    }
  }
  return left_out;
}

std::string when(std::int64_t step) { return step == kLatest ? "" : "step " + with_commas(step); }

std::string figure_of(const Shown& picture, const std::string& run) {
  const std::int64_t newest = picture.images.rbegin()->first;
  std::string html = "<figure class=\"picture\"" + (run.empty() ? "" : " data-run=\"" + std::to_string(picture.run) + "\"") +
                     "><figcaption><b>" + escaped(picture.name) + "</b>";
  if (!run.empty()) html += "<span class=\"t" + std::to_string(picture.run % 6) + "\">" + escaped(run) + "</span>";
  html += "<span class=\"when\">" + when(newest) + "</span></figcaption>";
  for (const auto& [step, image] : picture.images) {
    html += "<img alt=\"" + escaped(picture.name) + " " + when(step) + "\"" + (step == newest ? "" : " hidden") +
            " data-step=\"" + std::to_string(step) + "\" src=\"data:image/png;base64," + image + "\">";
  }
  return html + "</figure>";
}

}  // namespace

std::string pictures_html(std::span<const RunStory> runs, std::span<const std::string> names, std::size_t most) {
  std::vector<Shown> pictures = pictures_of(runs);
  const LeftOut left_out = embed(pictures, most);
  std::string html, before;
  for (const Shown& picture : pictures) {
    if (picture.images.empty()) continue;
    if (runs.size() > 1 && picture.name != before)
      html += (html.empty() ? "" : "</div>") + std::string("<div class=\"pictures side\">");
    before = picture.name;
    html += figure_of(picture, runs.size() > 1 ? names[picture.run] : "");
  }
  if (!html.empty()) html = runs.size() > 1 ? html + "</div>" : "<div class=\"pictures\">" + html + "</div>";
  if (!html.empty()) html = "<div class=\"controls\" id=\"steps\"></div>" + html;
  if (!left_out.names.empty())
    html += "<p class=\"note\">These pictures are too large for this page; they are in the run's folder: " +
            escaped(joined(left_out.names, ", ", [](const std::string& name) { return name; })) + ".</p>";
  if (left_out.earlier > 0)
    html += "<p class=\"note\">" + std::to_string(left_out.earlier) + " more pictures of earlier steps are in pictures/.</p>";
  return html;
}

}  // namespace millrace::runs
