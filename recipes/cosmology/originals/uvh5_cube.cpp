#include "recipes/cosmology/originals/uvh5_cube.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/hdf5/stored_numbers.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

constexpr double kSameTime = 1e-3 / 86400;  // times that differ by at most this count as equal; in days
constexpr double kSameChannel = 1;          // channels that differ by at most this count as equal; in hertz
constexpr std::int64_t kBlockBytes = std::int64_t{64} << 20U;
constexpr std::size_t kShown = 30;  // a message lists at most this many baselines
// The files must have at least 1 / kFewestRows of all possible rows (baselines x times), even if missing rows are filled.
constexpr std::int64_t kFewestRows = 8;

std::vector<double> ascending(std::vector<double> values, double apart) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end(), [&](double a, double b) { return b - a < apart; }), values.end());
  return values;
}

std::int64_t place_of(const std::vector<double>& axis, double value, double apart) {
  const auto it = std::lower_bound(axis.begin(), axis.end(), value - apart);
  return it != axis.end() && std::abs(*it - value) < apart ? it - axis.begin() : -1;
}

Baseline turned(const Baseline& baseline) { return {baseline.second, baseline.first}; }
Baseline in_order(const Baseline& baseline) { return baseline.first <= baseline.second ? baseline : turned(baseline); }

// Cuts an axis to the selected indices. If the selection is empty or outside the axis, adds a problem and returns false.
bool cut(std::vector<double>& axis, const Part& part, const std::string& flag, const std::string& what,
         std::vector<Problem>& problems) {
  const auto size = static_cast<std::int64_t>(axis.size());
  const std::int64_t end = part.end < 0 ? size : part.end;
  if (part.begin >= end || end > size) {
    problems.push_back({"there are " + with_commas(size) + " " + what + ", " + std::to_string(part.begin) + ":" +
                            (part.end < 0 ? "" : std::to_string(part.end)) + " is not among them",
                        flag, "give BEGIN:END with 0 <= BEGIN < END <= " + std::to_string(size)});
    return false;
  }
  axis = {axis.begin() + part.begin, axis.begin() + end};
  return true;
}

std::vector<Baseline> baselines_of(std::span<const Header> files) {
  std::map<Baseline, Baseline> met;  // sorted pair -> the direction in which the baseline first occurred
  for (const Header& file : files) {
    for (const Baseline& row : file.rows) met.emplace(in_order(row), row);
  }
  std::vector<Baseline> baselines;
  baselines.reserve(met.size());
  for (const auto& [key, baseline] : met) baselines.push_back(baseline);
  return baselines;
}

void choose_baselines(Axes& axes, const Selection& selection, std::vector<Problem>& problems) {
  std::set<Baseline> there;
  for (const Baseline& baseline : axes.baselines) there.insert(in_order(baseline));
  std::set<Baseline> named;
  std::vector<std::string> unknown;
  for (const Baseline& baseline : selection.baselines) {
    if (!there.contains(in_order(baseline))) unknown.push_back(text_of(baseline));
    named.insert(in_order(baseline));
  }
  if (!unknown.empty()) {
    const std::size_t shown = std::min<std::size_t>(axes.baselines.size(), kShown);
    const std::string more =
        axes.baselines.size() > shown ? " and " + std::to_string(axes.baselines.size() - shown) + " more" : "";
    problems.push_back({"no file has the baseline " + joined(unknown, ", "), "--baselines",
                        "the files have " + joined(std::span(axes.baselines).first(shown), " ", text_of) + more});
  }
  const std::set<std::int64_t> antennas(selection.antennas.begin(), selection.antennas.end());
  const std::size_t all = axes.baselines.size();
  std::erase_if(axes.baselines, [&](const Baseline& each) {
    if (!named.empty() && !named.contains(in_order(each))) return true;
    return !antennas.empty() && !(antennas.contains(each.first) && antennas.contains(each.second));
  });
  const std::size_t chosen = axes.baselines.size();
  if (!selection.autos && named.empty())
    std::erase_if(axes.baselines, [](const Baseline& each) { return each.first == each.second; });
  const std::size_t autos = chosen - axes.baselines.size();
  if (autos > 0)
    axes.notices.push_back(std::to_string(autos) + (autos == 1 ? " auto-correlation is" : " auto-correlations are") +
                           " left out; --autos keeps them");
  if (axes.baselines.empty() && unknown.empty())
    problems.push_back({"the selection keeps none of " + std::to_string(all) + " baselines", "--baselines, --antennas, --autos",
                        autos > 0 ? "only autos are chosen: give --autos to keep them" : "choose others"});
}

void choose_polarisations(Axes& axes, std::span<const Header> files, const Selection& selection, std::vector<Problem>& problems) {
  for (const Header& file : files) {
    for (const std::int64_t each : file.polarisations) {
      if (std::find(axes.polarisations.begin(), axes.polarisations.end(), each) == axes.polarisations.end())
        axes.polarisations.push_back(each);
    }
  }
  if (selection.polarisations.empty()) return;
  std::vector<std::string> unknown;
  for (const std::int64_t each : selection.polarisations) {
    if (std::find(axes.polarisations.begin(), axes.polarisations.end(), each) == axes.polarisations.end())
      unknown.push_back(polarisation_name(each));
  }
  if (!unknown.empty())
    return problems.push_back({"no file has the polarisation " + joined(unknown, ", "), "--pol",
                               "the files have " + joined(axes.polarisations, ", ", polarisation_name)});
  const std::size_t out = axes.polarisations.size() - selection.polarisations.size();
  if (out > 0)
    axes.notices.push_back("polarisations " + joined(selection.polarisations, ", ", polarisation_name) + " of " +
                           joined(axes.polarisations, ", ", polarisation_name));
  axes.polarisations = selection.polarisations;
}

void choose_band(Axes& axes, const Selection& selection, std::vector<Problem>& problems) {
  if (selection.band_mhz) {
    const auto [low, high] = *selection.band_mhz;
    const std::string has = fixed(axes.freq_hz.front() / 1e6, 3) + " to " + fixed(axes.freq_hz.back() / 1e6, 3) + " MHz";
    std::erase_if(axes.freq_hz, [low = low, high = high](double hz) { return hz < low * 1e6 || hz > high * 1e6; });
    if (axes.freq_hz.empty()) return problems.push_back({"no channel is inside the band", "--band", "the files have " + has});
  }
  cut(axes.freq_hz, selection.channels, "--channels", "channels", problems);
}

// Refuses axes for which the files have too few rows. This limits memory, because a damaged file may name any antennas and
// times.
void check_rows(const Axes& axes, std::span<const Header> files, std::vector<Problem>& problems) {
  std::set<Baseline> chosen;
  for (const Baseline& baseline : axes.baselines) chosen.insert(in_order(baseline));
  std::set<std::pair<Baseline, std::int64_t>> met;
  for (const Header& file : files) {
    for (std::size_t row = 0; row < file.rows.size(); ++row) {
      const std::int64_t time = place_of(axes.times, file.times[row], kSameTime);
      if (time >= 0 && chosen.contains(in_order(file.rows[row]))) met.emplace(in_order(file.rows[row]), time);
    }
  }
  const std::size_t all = axes.baselines.size() * axes.times.size();
  if (met.size() * kFewestRows >= all) return;
  problems.push_back({"the files have only " + with_commas(static_cast<std::int64_t>(met.size())) + " of the " +
                          with_commas(static_cast<std::int64_t>(all)) + " rows for " + std::to_string(axes.baselines.size()) +
                          " baselines at each of " + std::to_string(axes.times.size()) + " times",
                      "/Header/ant_1_array, /Header/time_array",
                      "choose baselines (--baselines) that were observed together, or convert the files one by one"});
}

// Sets the east and north components of each baseline's vector from antenna a to b, in metres. For this, the earth's axes are
// rotated to those of the telescope's place.
void add_separations(Axes& axes, std::span<const Header> files) {
  for (const Header& file : files) {
    const double latitude = file.latitude * std::numbers::pi / 180;
    const double longitude = file.longitude * std::numbers::pi / 180;
    std::vector<std::array<double, 2>> separations;
    for (const auto& [a, b] : axes.baselines) {
      const auto from = file.places.find(a);
      const auto to = file.places.find(b);
      if (from == file.places.end() || to == file.places.end()) break;
      std::array<double, 3> d{};
      for (std::size_t i = 0; i < 3; ++i) d.at(i) = to->second.at(i) - from->second.at(i);
      const double outward = std::cos(longitude) * d[0] + std::sin(longitude) * d[1];
      separations.push_back(
          {-std::sin(longitude) * d[0] + std::cos(longitude) * d[1], -std::sin(latitude) * outward + std::cos(latitude) * d[2]});
    }
    if (separations.size() != axes.baselines.size()) continue;
    axes.separations = std::move(separations);
    return;
  }
}

// Where the values of a file go: the indices of the file's channels on the joint axis, and the polarisation that is read.
struct Target {
  std::vector<std::int64_t> channels;
  std::int64_t polarisation = -1, exchanged_polarisation = -1;
};

class CubeReader {
 public:
  CubeReader(const Axes& axes, std::int64_t polarisation) : axes_(axes), polarisation_(polarisation) {
    cube_.shape = axes.shape();
    cube_.values.resize(static_cast<std::size_t>(*element_count(cube_.shape)));
    cube_.states.resize(cube_.values.size());
    for (std::size_t i = 0; i < axes.baselines.size(); ++i) places_[axes.baselines[i]] = static_cast<std::int64_t>(i);
  }

  // Adds the values of a file. Returns how many of these values an earlier file already had.
  std::int64_t add(const Header& file) {
    Target target;
    for (const double hz : file.freq_hz) target.channels.push_back(place_of(axes_.freq_hz, hz, kSameChannel));
    for (std::size_t p = 0; p < file.polarisations.size(); ++p) {
      const auto place = static_cast<std::int64_t>(p);
      if (file.polarisations[p] == polarisation_) target.polarisation = place;
      if (file.polarisations[p] == exchanged(polarisation_)) target.exchanged_polarisation = place;
    }
    const auto rows = static_cast<std::int64_t>(file.rows.size());
    const auto channels = static_cast<std::int64_t>(file.freq_hz.size());
    const auto pols = static_cast<std::int64_t>(file.polarisations.size());
    const std::int64_t block = std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(1, channels * pols * 16));
    twice_ = 0;
    for (std::int64_t begin = 0; begin < rows; begin += block) add_rows(file, target, begin, std::min(block, rows - begin));
    return twice_;
  }

  Visibilities take() { return std::move(cube_); }

 private:
  [[nodiscard]] bool is_wanted(const Header& file, std::int64_t row) const {
    const Baseline& baseline = file.rows[static_cast<std::size_t>(row)];
    return (places_.contains(baseline) || places_.contains(turned(baseline))) &&
           place_of(axes_.times, file.times[static_cast<std::size_t>(row)], kSameTime) >= 0;
  }

  void add_rows(const Header& file, const Target& target, std::int64_t begin, std::int64_t rows) {
    while (rows > 0 && !is_wanted(file, begin)) {
      ++begin;
      --rows;
    }
    while (rows > 0 && !is_wanted(file, begin + rows - 1)) --rows;
    if (rows == 0) return;
    Shape offset{begin, 0, 0};
    Shape count{rows, static_cast<std::int64_t>(file.freq_hz.size()), static_cast<std::int64_t>(file.polarisations.size())};
    if (file.has_spectral_axis) {
      offset.insert(offset.begin() + 1, 0);
      count.insert(count.begin() + 1, 1);
    }
    const auto elements = static_cast<std::size_t>(*element_count(count));
    flags_.assign(elements, 0);
    samples_.assign(elements, 1);
    const auto read = [&](const char* name, auto& to) {
      file.file->read(name, offset, count, std::as_writable_bytes(std::span(to)));
    };
    if (file.has_flags) read("/Data/flags", flags_);
    if (file.has_samples) read_samples(file, offset, count);
    if (file.wide) {
      double_.resize(elements);
      read("/Data/visdata", double_);
      place_rows(file, target, begin, rows, double_);
    } else {
      single_.resize(elements);
      read("/Data/visdata", single_);
      place_rows(file, target, begin, rows, single_);
    }
  }

  // Reads the numbers of samples. These numbers may have any type, because they are only compared with 0.
  void read_samples(const Header& file, const Shape& offset, const Shape& count) {
    constexpr auto kName = "/Data/nsamples";
    const DType dtype = file.file->dataset(kName).dtype;
    if (dtype == DType::f32) return file.file->read(kName, offset, count, std::as_writable_bytes(std::span(samples_)));
    stored_.resize(samples_.size() * size_of(dtype));
    file.file->read(kName, offset, count, stored_);
    std::vector<double> values(samples_.size());
    MR_CHECK(convert_numbers<double>(dtype, stored_, values), "the header's check accepts only real numbers");
    std::ranges::transform(values, samples_.begin(), [](double value) { return value == 0 ? 0.0F : 1.0F; });
  }

  template <class T>
  void place_rows(const Header& file, const Target& target, std::int64_t begin, std::int64_t rows,
                  const std::vector<std::complex<T>>& values) {
    const std::size_t channels = file.freq_hz.size();
    const std::size_t pols = file.polarisations.size();
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto place = static_cast<std::size_t>(begin + row);
      const std::int64_t time = place_of(axes_.times, file.times[place], kSameTime);
      const Baseline& baseline = file.rows[place];
      const auto straight = places_.find(baseline);
      const auto other = places_.find(turned(baseline));
      const bool turns = straight == places_.end();
      const std::int64_t pol = turns ? target.exchanged_polarisation : target.polarisation;
      if (time < 0 || pol < 0 || (turns && other == places_.end())) continue;
      const std::int64_t to = (turns ? other : straight)->second;
      for (std::size_t f = 0; f < channels; ++f) {
        if (target.channels[f] < 0) continue;
        const std::size_t from = (static_cast<std::size_t>(row) * channels + f) * pols + static_cast<std::size_t>(pol);
        const auto at = static_cast<std::size_t>((to * cube_.shape[1] + target.channels[f]) * cube_.shape[2] + time);
        if (cube_.states[at] != Value::absent) ++twice_;
        const std::complex<double> value(values[from].real(), values[from].imag());
        cube_.values[at] = turns ? std::conj(value) : value;
        cube_.states[at] = flags_[from] != 0 || samples_[from] == 0 ? Value::flagged : Value::good;
      }
    }
  }

  const Axes& axes_;
  std::int64_t polarisation_;
  std::map<Baseline, std::int64_t> places_;
  Visibilities cube_;
  std::int64_t twice_ = 0;
  std::vector<std::uint8_t> flags_;
  std::vector<float> samples_;
  std::vector<std::byte> stored_;
  std::vector<std::complex<float>> single_;
  std::vector<std::complex<double>> double_;
};

}  // namespace

std::string text_of(const Baseline& baseline) { return std::to_string(baseline.first) + "-" + std::to_string(baseline.second); }

std::optional<Axes> axes_of(std::span<const Header> files, const Selection& selection, std::vector<Problem>& problems) {
  const std::size_t before = problems.size();
  Axes axes;
  for (const Header& file : files) {
    axes.times.insert(axes.times.end(), file.times.begin(), file.times.end());
    axes.freq_hz.insert(axes.freq_hz.end(), file.freq_hz.begin(), file.freq_hz.end());
    axes.wide = axes.wide || file.wide;
    if (file.unit != files[0].unit)
      problems.push_back({file.name() + " is in " + (file.unit.empty() ? "an unknown unit" : quoted(file.unit)) + ", " +
                              files[0].name() + " in " + (files[0].unit.empty() ? "an unknown unit" : quoted(files[0].unit)),
                          file.file->path().string(), "convert both files to the same unit, or leave one out"});
  }
  axes.unit = files[0].unit;
  axes.times = ascending(std::move(axes.times), kSameTime);
  axes.freq_hz = ascending(std::move(axes.freq_hz), kSameChannel);
  axes.baselines = baselines_of(files);
  choose_baselines(axes, selection, problems);
  choose_polarisations(axes, files, selection, problems);
  choose_band(axes, selection, problems);
  cut(axes.times, selection.times, "--times", "times", problems);
  if (problems.size() == before) check_rows(axes, files, problems);
  if (problems.size() > before) return std::nullopt;
  add_separations(axes, files);
  return axes;
}

Axes of_baselines(const Axes& axes, std::int64_t first, std::int64_t count) {
  Axes part = axes;
  part.baselines = {axes.baselines.begin() + first, axes.baselines.begin() + first + count};
  part.separations.clear();
  return part;
}

bool turn_like(Axes& axes, const Axes& like) {
  const bool same = std::equal(axes.baselines.begin(), axes.baselines.end(), like.baselines.begin(), like.baselines.end(),
                               [](const Baseline& a, const Baseline& b) { return in_order(a) == in_order(b); });
  if (!same) return false;
  for (std::size_t i = 0; i < axes.baselines.size(); ++i) {
    if (axes.baselines[i] == like.baselines[i]) continue;
    axes.baselines[i] = like.baselines[i];
    if (axes.separations.empty()) continue;
    for (double& length : axes.separations[i]) length = -length;
  }
  return true;
}

Visibilities read_visibilities(std::span<const Header> files, const Axes& axes, std::int64_t polarisation,
                               std::span<std::int64_t> twice) {
  CubeReader reader(axes, polarisation);
  for (std::size_t i = 0; i < files.size(); ++i) twice[i] += reader.add(files[i]);
  return reader.take();
}

}  // namespace millrace::recipes::cosmology::uvh5
