#include "millrace/train/report/pictures.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/format/csv.h"
#include "millrace/format/png.h"
#include "millrace/picture/draw.h"
#include "millrace/train/run_folder/run_files.h"

namespace millrace {
namespace {

// A picture of a confusion table. Its name becomes a file name, so slashes in the metric's name are replaced.
Picture picture_of(const metrics::Confusion& table, const std::string& when) {
  std::string name = table.name;
  std::ranges::replace(name, '/', '_');
  return picture::matrix({.name = name,
                          .title = table.name + " " + when,
                          .caption = with_commas(table.total()) + " labels, accuracy " + significant(table.accuracy(), 4),
                          .classes = table.classes,
                          .counts = table.counts});
}

}  // namespace

std::vector<Picture> pictures_of(Recipe& recipe, const std::vector<metrics::Confusion>& tables, const std::string& when) {
  std::vector<Picture> pictures = recipe.draw();
  for (const metrics::Confusion& table : tables) {
    Picture picture = picture_of(table, when);
    const bool is_drawn = std::ranges::find(pictures, picture.name, &Picture::name) != pictures.end();
    if (!is_drawn) pictures.push_back(std::move(picture));  // skipped if a picture of the recipe has the same file name
  }
  return pictures;
}

std::string png_of(const Picture& picture) {
  const auto png =
      format::encode_png({picture.height, picture.width, format::Pixels::rgb}, std::as_bytes(std::span(picture.rgb)));
  return {reinterpret_cast<const char*>(png.data()), png.size()};
}

std::vector<std::int64_t> steps_to_drop(std::vector<std::int64_t> steps, std::size_t most) {
  std::vector<std::int64_t> dropped;
  while (steps.size() > most) {
    std::size_t closest = 0;
    for (std::size_t i = 1; i + 1 < steps.size(); ++i) {
      if (closest == 0 || steps[i + 1] - steps[i - 1] < steps[closest + 1] - steps[closest - 1]) closest = i;
    }
    dropped.push_back(steps[closest]);
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(closest));
  }
  return dropped;
}

std::string keep_picture(RunFolder& folder, Fs& fs, const Picture& picture, std::int64_t step, std::size_t most) {
  std::string bytes = png_of(picture);
  write_atomically(fs, folder.own(std::string(run_files::kPictures) + "/" + picture.name + ".png"), bytes);
  if (most > 0) write_atomically(fs, folder.own(run_files::picture_of_step(picture.name, step)), bytes);
  return bytes;
}

void keep_table(RunFolder& folder, Fs& fs, const TextTable& table) {
  std::string text = format::csv_line(table.columns) + "\n";
  for (const auto& row : table.rows) text += format::csv_line(row) + "\n";
  write_atomically(fs, folder.own(table.name + ".csv"), text);
}

void thin_pictures(RunFolder& folder, std::size_t most) {
  const std::set<std::string> files = folder.record().files;
  std::set<std::int64_t> steps;
  for (const std::string& file : files) {
    if (const std::int64_t step = run_files::step_of_picture(file); step >= 0) steps.insert(step);
  }
  const std::vector<std::int64_t> dropped = steps_to_drop({steps.begin(), steps.end()}, most);
  for (const std::string& file : files) {
    const std::int64_t step = run_files::step_of_picture(file);
    if (step >= 0 && std::ranges::find(dropped, step) != dropped.end()) folder.remove(file);
  }
}

}  // namespace millrace
