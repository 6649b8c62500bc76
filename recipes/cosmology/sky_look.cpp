#include "recipes/cosmology/sky_look.h"

#include <algorithm>
#include <cmath>
#include <complex>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/median.h"
#include "recipes/cosmology/unusable_sky.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::int64_t kBytesOfAFile = 1 << 20;  // about this many bytes of a file are read, and at least one baseline
constexpr std::int64_t kBytesOfAll = 1 << 28;
constexpr std::size_t kFewFiles = 3;  // with at most this many files, nobody can say what is usual
// a power is odd if it differs from the median by this factor; kelvin and millikelvin differ in power by a factor of a million
constexpr double kOtherPower = 1e4;
constexpr double kOtherSpectrum = 0.8;  // two spectra differ if their correlation is below this
constexpr double kRougher = 100;        // a file is rough if its roughness exceeds that of the median file by this factor;
                                        // roughness: power of the steps from channel to channel, as a share of the file's power
// smallest roughness that is reported; below it, a steep spectrum may be the cause
constexpr double kRough = 0.1;
constexpr double kExchanged = 10;  // a signal this many times as strong as the foreground means that the two may be exchanged

struct Seen {
  const hdf5::File* file;
  bool is_flat = false, is_broken = false;  // is_flat: all values are equal; is_broken: some values are NaN or infinite
  double power = 0, roughness = 0;
  std::vector<double> channels, baselines;  // power of each channel and of each baseline
};

struct Kind {
  std::string name;  // "foreground" or "signal"
  std::vector<Seen> files;
};

std::string name_of(const Kind& kind, const Seen& seen) { return kind.name + "/" + seen.file->path().filename().string(); }

template <class T>
void add_powers(const std::vector<std::complex<T>>& values, const Shape& block, Seen& seen) {
  const auto rows = static_cast<std::size_t>(block[1]), pixels = static_cast<std::size_t>(block[2]);
  seen.channels.assign(rows, 0);
  seen.baselines.assign(static_cast<std::size_t>(block[0]), 0);
  seen.is_flat = true;
  double steps = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t channel = i / pixels % rows, baseline = i / pixels / rows;
    const auto power = static_cast<double>(std::norm(values[i]));
    seen.is_flat = seen.is_flat && values[i] == values[0];
    seen.power += power;
    seen.channels[channel] += power;
    seen.baselines[baseline] += power;
    if (channel > 0) steps += static_cast<double>(std::norm(values[i] - values[i - pixels]));
  }
  if (seen.power > 0) seen.roughness = steps / seen.power;
  seen.power /= static_cast<double>(values.size());
}

// Reads a block of the file's cube into `seen`. Returns false if the file can't be read.
bool look(const hdf5::File& file, const std::string& cube, const Shape& block, Seen& seen) {
  const auto take = [&]<class T>(std::vector<std::complex<T>> values) {
    values.resize(static_cast<std::size_t>(*element_count(block)));
    file.read(cube, Shape{0, 0, 0}, block, std::as_writable_bytes(std::span(values)));
    add_powers(values, block, seen);
  };
  try {
    if (file.dataset(cube).dtype == DType::c128) {
      take(std::vector<std::complex<double>>());
    } else {
      take(std::vector<std::complex<float>>());
    }
  } catch (const DataError&) {
    return false;
  }
  seen.is_broken = !std::isfinite(seen.power);
  return true;
}

// The number of bytes that must be read from the file to get this block.
double bytes_touched(const hdf5::Dataset& cube, const Shape& block) {
  double bytes = static_cast<double>(size_of(cube.dtype));
  for (std::size_t axis = 0; axis < block.size(); ++axis) {
    const std::int64_t chunk = cube.chunk.empty() ? 1 : std::max<std::int64_t>(cube.chunk[axis], 1);
    const std::int64_t chunks = (block[axis] + chunk - 1) / chunk;
    bytes *= static_cast<double>(chunks * chunk);
  }
  return bytes;
}

Kind kind_of(const std::string& name, const std::vector<SkyFile>& train, const std::vector<SkyFile>& validation,
             const RecipeConfig& recipe, const Shape& shape) {
  std::vector<SkyFile> all = train;
  all.insert(all.end(), validation.begin(), validation.end());
  std::erase_if(all, [](const SkyFile& file) { return !is_usable(file); });
  Kind kind{name, {}};
  if (all.empty()) return kind;
  const hdf5::Dataset& cube = all.front()->dataset(recipe.vis_dataset);
  Shape block = {1, shape[1], recipe.ra_keep};
  const double each = bytes_touched(cube, block);
  block[0] = std::clamp<std::int64_t>(static_cast<std::int64_t>(kBytesOfAFile / each), 1, shape[0]);
  const auto most = std::max<std::size_t>(static_cast<std::size_t>(kBytesOfAll / bytes_touched(cube, block)), 1);
  const std::size_t count = std::min(all.size(), most);
  for (std::size_t i = 0; i < count; ++i) {
    Seen seen{.file = all[i * all.size() / count].get()};
    const bool is_known =
        std::ranges::any_of(kind.files, [&](const Seen& other) { return other.file->path() == seen.file->path(); });
    if (!is_known && look(*seen.file, recipe.vis_dataset, block, seen)) kind.files.push_back(std::move(seen));
  }
  return kind;
}

template <class Value>
double median_of(const Kind& kind, Value value) {
  std::vector<double> values;
  for (const Seen& seen : kind.files) values.push_back(value(seen));
  return values.empty() ? 0 : millrace::median(std::move(values));
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sa += a[i];
    sb += b[i];
    saa += a[i] * a[i];
    sbb += b[i] * b[i];
    sab += a[i] * b[i];
  }
  const double spread = (saa - sa * sa / n) * (sbb - sb * sb / n);
  return spread > 0 ? (sab - sa * sb / n) / std::sqrt(spread) : 0;
}

// The usual spectrum: the share of a file's power that each channel has, as the median over all files.
std::vector<double> usual_spectrum(const Kind& kind) {
  std::vector<double> usual;
  for (std::size_t f = 0; f < kind.files.front().channels.size(); ++f)
    usual.push_back(median_of(kind, [&](const Seen& seen) { return seen.power > 0 ? seen.channels[f] / seen.power : 0; }));
  return usual;
}

// Adds a line about the files for which `what` returns a text. The line names the first of these files.
template <class What>
void add_lines(const Kind& kind, What what, std::vector<std::string>& lines) {
  std::string line;
  std::size_t more = 0;
  for (const Seen& seen : kind.files) {
    const std::string text = what(seen);
    if (text.empty()) continue;
    if (line.empty()) {
      line = name_of(kind, seen) + " " + text;
    } else {
      ++more;
    }
  }
  if (more > 0) line += " (and " + std::to_string(more) + " more of " + std::to_string(kind.files.size()) + " files)";
  if (!line.empty()) lines.push_back(line);
}

void note_dead_baselines(const Kind& kind, std::vector<std::string>& lines) {
  std::vector<std::size_t> dead(kind.files.front().baselines.size());
  for (const Seen& seen : kind.files) {
    for (std::size_t b = 0; b < dead.size(); ++b) dead[b] += seen.baselines[b] == 0 ? 1U : 0U;
  }
  add_lines(
      kind,
      [&](const Seen& seen) -> std::string {
        if (seen.power == 0) return "";
        for (std::size_t b = 0; b < dead.size(); ++b)
          if (seen.baselines[b] == 0 && 2 * dead[b] <= kind.files.size())
            return "is zero in baseline " + std::to_string(b) +
                   " (counted from 0), where other files have values: repair or remove the file";
        return "";
      },
      lines);
}

void note_spectra(const Kind& kind, std::vector<std::string>& lines) {
  const std::vector<double> usual = usual_spectrum(kind);
  const std::vector<double> turned(usual.rbegin(), usual.rend());
  const double roughness = median_of(kind, [](const Seen& seen) { return seen.roughness; });
  add_lines(
      kind,
      [&](const Seen& seen) -> std::string {
        if (correlation(seen.channels, usual) > -kOtherSpectrum || correlation(seen.channels, turned) < kOtherSpectrum) return "";
        return "has the spectrum of the other files reversed: are its channels in the opposite order?";
      },
      lines);
  add_lines(
      kind,
      [&](const Seen& seen) -> std::string {
        if (roughness == 0 || seen.roughness < kRough || seen.roughness < kRougher * roughness) return "";
        return "changes from channel to channel " + significant(std::sqrt(seen.roughness / roughness), 2) +
               " times as much as other files: are its axes exchanged, or does it have interference?";
      },
      lines);
}

void look_at(Kind& kind, std::vector<std::string>& lines) {
  if (kind.files.empty()) return;
  const auto note_if = [&](auto is_so, const char* what) {
    add_lines(
        kind, [&](const Seen& seen) -> std::string { return is_so(seen) ? what : ""; }, lines);
  };
  note_if([](const Seen& seen) { return seen.is_broken; }, "has values that are NaN or infinite: repair or remove the file");
  note_if([](const Seen& seen) { return seen.is_flat && seen.power == 0; }, "is zero throughout: repair or remove the file");
  note_if([](const Seen& seen) { return seen.is_flat && seen.power > 0; },
          "has the same value everywhere: repair or remove the file");
  std::erase_if(kind.files, [](const Seen& seen) { return seen.is_broken; });
  if (kind.files.size() < kFewFiles) return;
  const double power = median_of(kind, [](const Seen& seen) { return seen.power; });
  add_lines(
      kind,
      [&](const Seen& seen) -> std::string {
        if (seen.is_flat || power == 0 || (seen.power < power * kOtherPower && seen.power > power / kOtherPower)) return "";
        return "is " + significant(std::sqrt(seen.power / power), 3) +
               " times as strong as the other files: is it in another unit, or of another sky?";
      },
      lines);
  if (kind.name != "foreground") return;  // only for foregrounds, because a signal may be zero in places
  note_dead_baselines(kind, lines);
  note_spectra(kind, lines);
}

}  // namespace

std::vector<std::string> look_at_files(const RecipeConfig& recipe, const Sky& sky) {
  Kind signal = kind_of("signal", sky.train.signal, sky.validation.signal, recipe, sky.shape);
  Kind foreground = kind_of("foreground", sky.train.foreground, sky.validation.foreground, recipe, sky.shape);
  std::vector<std::string> lines;
  look_at(signal, lines);
  look_at(foreground, lines);
  const auto amplitude = [](const Kind& kind) { return std::sqrt(median_of(kind, [](const Seen& seen) { return seen.power; })); };
  if (const double a = amplitude(signal), b = amplitude(foreground); b > 0 && a > kExchanged * b) {
    lines.push_back("the signal is " + significant(a / b, 3) + " times as strong as the foreground (" +
                    name_of(signal, signal.files.front()) + ", " + name_of(foreground, foreground.files.front()) +
                    "): are the two folders exchanged?");
  }
  return lines;
}

}  // namespace millrace::recipes::cosmology
