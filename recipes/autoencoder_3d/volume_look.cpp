#include "recipes/autoencoder_3d/volume_look.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

constexpr double kBytesOfAll = 1 << 27;
constexpr double kSameSize = 0.05;    // two voxel sizes count as equal if they differ by at most this share
constexpr std::size_t kFewFiles = 3;  // with at most this many files, nobody can say which value is usual
constexpr std::size_t kManyValues = 33;
constexpr std::size_t kLabels = 16;
// a file is odd if its Seen::place differs from the median of all files' places by more than this
constexpr double kOtherPlace = 0.6;

std::vector<const VolumeFile*> all_of(const VolumeFiles& files) {
  std::vector<const VolumeFile*> all;
  for (const auto* list : {&files.train, &files.validation}) {
    for (const VolumeFile& file : *list) all.push_back(&file);
  }
  return all;
}

// A line such as "3 of 20 files WHAT, the first: "a.nii"".
std::string notice_of(const std::vector<const VolumeFile*>& odd, std::size_t all, const std::string& what) {
  return std::to_string(odd.size()) + " of " + std::to_string(all) + " files " + what +
         (odd.size() == 1 ? ": " : ", the first: ") + quoted(odd.front()->path.filename().string());
}

void look_at_sizes(const std::vector<const VolumeFile*>& all, const RecipeConfig& recipe, std::vector<std::string>& notices) {
  // Returns, because recipe.spacing gives the expected size, and other code compares the files with that size.
  if (!recipe.spacing.empty()) return;
  std::array<double, 3> usual{};
  for (std::size_t axis = 0; axis < usual.size(); ++axis) {
    std::vector<double> sizes;
    for (const VolumeFile* file : all) {
      if (file->spacing[axis] > 0) sizes.push_back(file->spacing[axis]);
    }
    if (!sizes.empty()) usual[axis] = median(std::move(sizes));
  }
  std::vector<const VolumeFile*> odd;
  for (const VolumeFile* file : all) {
    bool differs = false;
    for (std::size_t axis = 0; axis < usual.size(); ++axis)
      differs |= file->spacing[axis] > 0 && std::abs(file->spacing[axis] - usual[axis]) > kSameSize * usual[axis];
    if (differs) odd.push_back(file);
  }
  if (odd.empty() || 2 * odd.size() >= all.size()) return;
  const auto text = [](const std::array<double, 3>& size) {
    return joined(size, " x ", [](double side) { return significant(side, 3); }) + " mm";
  };
  notices.push_back(
      notice_of(odd, all.size(), "with voxels of " + text(odd.front()->spacing) + ", while most have " + text(usual)) +
      ". Nothing is resampled");
}

struct Seen {
  const VolumeFile* file;
  float least = 0, most = 0;
  std::size_t values = 0;  // number of different values; kManyValues means at least that many
  double place = 0;        // the median's place in the file's range: 0 is the lowest value, 1 is percentile 99.5
};

std::size_t count_unlike(const std::vector<float>& values) {
  std::vector<float> known;
  for (const float value : values) {
    if (!known.empty() && known.back() == value) continue;
    const auto at = std::ranges::find(known, value);
    if (at != known.end()) {
      std::swap(*at, known.back());  // moves the value to the end, which is compared first, because the next voxel often has the
                                     // same value
    } else {
      known.push_back(value);
      if (known.size() == kManyValues) break;
    }
  }
  return known.size();
}

Seen look(const VolumeFile& file) {
  std::vector<std::byte> volume(kept_bytes(file));
  read_volumes(file, 1, volume);
  std::vector<float> values(static_cast<std::size_t>(element_count(file.shape).value_or(0)));
  cut_volume(file, volume, {0, 0, 0}, file.shape, values);
  const auto [least, most] = std::ranges::minmax(values);
  Seen seen{.file = &file, .least = least, .most = most, .values = count_unlike(values)};
  const std::array<float, 2> range = range_of_volume(file, volume);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (range[1] > range[0]) seen.place = static_cast<double>((*middle - range[0]) / (range[1] - range[0]));
  return seen;
}

}  // namespace

std::vector<std::string> look_at_headers(const VolumeFiles& files, const RecipeConfig& recipe) {
  std::vector<std::string> notices;
  const std::vector<const VolumeFile*> all = all_of(files);
  look_at_sizes(all, recipe, notices);
  return notices;
}

std::vector<std::string> look_at_values(const VolumeFiles& files, bool passes) {
  const std::vector<const VolumeFile*> all = all_of(files);
  double bytes = 1;
  for (const VolumeFile* file : all) bytes += static_cast<double>(kept_bytes(*file));
  const double share = std::min(1.0, kBytesOfAll / bytes);
  const auto count = std::max<std::size_t>(static_cast<std::size_t>(share * static_cast<double>(all.size())), 1);
  std::vector<Seen> seen;
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) {
    try {
      seen.push_back(look(*all[i * all.size() / count]));
    } catch (const DataError&) {
      if (!passes) throw;
    }
  }
  std::vector<double> places, unlike;
  for (const Seen& one : seen) {
    places.push_back(one.place);
    unlike.push_back(static_cast<double>(one.values));
  }
  const double usual_place = median(std::move(places)), usual_values = median(std::move(unlike));
  std::vector<const VolumeFile*> flat, labels, inverted;
  double place = 0;
  for (const Seen& one : seen) {
    if (one.least == one.most) {
      flat.push_back(one.file);
    } else if (seen.size() >= kFewFiles && one.values <= kLabels && usual_values >= static_cast<double>(kManyValues)) {
      labels.push_back(one.file);
    } else if (seen.size() >= kFewFiles && std::abs(one.place - usual_place) > kOtherPlace) {
      if (inverted.empty()) place = one.place;
      inverted.push_back(one.file);
    }
  }
  std::vector<std::string> notices;
  if (!flat.empty())
    notices.push_back(notice_of(flat, seen.size(), "in which all values are equal") + ". Next: repair or remove them");
  if (!labels.empty())
    notices.push_back(
        notice_of(labels, seen.size(), "with at most 16 different values, as labels have, while other files have many"));
  if (!inverted.empty()) {
    notices.push_back(notice_of(inverted, seen.size(),
                                "whose median is at " + percent(place) + " of their range, while it is at " +
                                    percent(usual_place) + " in most files") +
                      ". Are they inverted, or of another kind?");
  }
  return notices;
}

}  // namespace millrace::recipes::autoencoder_3d
