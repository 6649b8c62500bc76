#include "recipes/cosmology/sky_axes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <utility>
#include <variant>

#include "millrace/base/axis_text.h"
#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/hdf5/stored_axis.h"
#include "millrace/hdf5/stored_numbers.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr auto kFrequencies = "/index_map/freq";
constexpr auto kRedshifts = "/index_map/redshift";
constexpr auto kRightAscension = "/index_map/ra";
constexpr auto kUnit = "/index_map/unit";
constexpr std::int64_t kLongestUnit = 64;
constexpr double kLineMhz = 1420.405751768;  // the line of neutral hydrogen at rest
constexpr double kHighestMhz = 1e6;          // a larger number must be in hertz
constexpr double kSameMhz = 1e-3;            // the same tolerance as for the components of a PCA
// two frequencies count as equal if they differ by at most this share of a channel's width, because numbers may be f32 and
// redshifts are rounded
constexpr double kSameFrequency = 0.02;
constexpr double kSameStep = 0.01;  // two steps count as equal if they differ by at most this share of the step along RA
constexpr double kTurn = 360;       // a full turn, in degrees

std::string name_of_file(const hdf5::File& file) {
  const auto& path = file.path();
  return path.parent_path().filename().string() + "/" + path.filename().string();
}

const hdf5::Dataset* find(const hdf5::File& file, const std::string& name) {
  const auto sets = file.datasets();
  const auto it = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == name; });
  return it == sets.end() ? nullptr : &*it;
}

const hdf5::Unreadable* find_unreadable(const hdf5::File& file, const std::string& name) {
  const auto sets = file.unreadable();
  const auto it = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == name; });
  return it == sets.end() ? nullptr : &*it;
}

// Returns the unit that a text names. Removes the padding of fixed-length texts, and maps the usual spellings of a unit to one
// spelling.
std::string unit_word(std::string text) {
  text = text.substr(0, text.find('\0'));
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  while (!text.empty() && is_space(text.front())) text.erase(text.begin());
  const std::string low = to_lower(text);
  if (low == "k" || low == "kelvin" || low == "kelvins") return "K";
  if (low == "jy" || low == "jansky" || low == "janskys") return "Jy";
  return printable(text);
}

// Reads the numbers along an axis of the cube.
std::vector<double> numbers_of(const hdf5::File& file, const std::string& name, std::int64_t count, const std::string& axis,
                               SkyWords& words, std::vector<Problem>& problems) {
  if (const hdf5::Unreadable* unread = find_unreadable(file, name)) {
    words.unread.push_back(name + " can't be read: " + unread->reason);
    return {};
  }
  const hdf5::Dataset* set = find(file, name);
  if (set == nullptr) return {};
  if (set->shape.size() != 1 || !is_real(set->dtype)) {
    words.unread.push_back(name + " is " + std::string(name_of(set->dtype)) + " " + to_text(set->shape) +
                           ", not a list of numbers");
    return {};
  }
  const std::string where = file.path().string();
  if (set->shape[0] != count) {
    problems.push_back({name_of_file(file) + ": " + name + " has " + std::to_string(set->shape[0]) +
                            " numbers, but the cube has " + std::to_string(count) + " " + axis,
                        where, "write the axis anew with as many numbers as the cube has, or leave it out of all files"});
    return {};
  }
  std::vector<double> values = hdf5::numbers_of(file, *set);
  if (!std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); })) {
    problems.push_back({name_of_file(file) + ": " + name + " has numbers that are not finite", where,
                        "write the axis anew, or leave it out of all files"});
    return {};
  }
  return values;
}

void take_frequencies(const hdf5::File& file, std::int64_t count, SkyWords& words, std::vector<Problem>& problems) {
  words.freq_mhz = numbers_of(file, kFrequencies, count, "frequencies", words, problems);
  if (!words.freq_mhz.empty()) {
    static const std::map<std::string, double> kUnits = {{"hz", 1e-6}, {"khz", 1e-3}, {"mhz", 1}, {"ghz", 1e3}};
    const std::string said = unit_word(hdf5::unit_attribute(file, kFrequencies));
    const auto unit = kUnits.find(to_lower(said));
    const bool is_hertz = std::abs(words.freq_mhz.front()) > kHighestMhz;
    words.freq_from = kFrequencies;
    double factor = unit != kUnits.end() ? unit->second : is_hertz ? 1e-6 : 1;
    if (factor != 1) words.freq_from += unit != kUnits.end() ? " in " + said : " in Hz, because its numbers are so large";
    if (!said.empty() && unit == kUnits.end()) {
      words.unread.push_back(std::string(kFrequencies) + " is in " + quoted(said) + ", an unknown unit: taken as " +
                             (is_hertz ? "Hz" : "MHz"));
    }
    if (factor != 1) {
      for (double& value : words.freq_mhz) value *= factor;
    }
    return;
  }
  std::vector<double> redshifts = numbers_of(file, kRedshifts, count, "frequencies", words, problems);
  if (redshifts.empty()) return;
  words.freq_from = kRedshifts;
  for (const double redshift : redshifts) words.freq_mhz.push_back(kLineMhz / (1 + redshift));
}

void take_unit(const hdf5::File& file, const std::string& cube, SkyWords& words, std::vector<Problem>& problems) {
  std::vector<std::pair<std::string, std::string>> said;  // each place in the file that names a unit, and that unit
  const auto add = [&](const std::string& place, const std::string& text) {
    if (const std::string word = unit_word(text); !word.empty()) said.emplace_back(place, word);
  };
  if (const hdf5::Unreadable* text = find_unreadable(file, kUnit)) {
    if (text->text.empty()) words.unread.push_back(std::string(kUnit) + " can't be read: " + text->reason);
    add(kUnit, text->text);
  } else if (const hdf5::Dataset* set = find(file, kUnit)) {
    if (size_of(set->dtype) == 1 && set->shape.size() <= 1 && (set->shape.empty() || set->shape[0] <= kLongestUnit)) {
      std::string bytes(static_cast<std::size_t>(set->shape.empty() ? 1 : set->shape[0]), ' ');
      file.read(kUnit, Shape(set->shape.size(), 0), set->shape, std::as_writable_bytes(std::span(bytes)));
      add(kUnit, bytes);
    } else {
      words.unread.push_back(std::string(kUnit) + " is " + std::string(name_of(set->dtype)) + " " + to_text(set->shape) +
                             ", not a text");
    }
  }
  add("the attribute of " + cube, hdf5::unit_attribute(file, cube));
  add("the attribute of the file", hdf5::unit_attribute(file, "/"));
  for (const auto& [place, unit] : said) {
    if (unit == said.front().second) continue;
    std::string text = name_of_file(file);
    text.append(" is in ").append(said.front().second).append(" by ").append(said.front().first);
    text.append(", in ").append(unit).append(" by ").append(place);
    problems.push_back({std::move(text), file.path().string(), "leave one unit in the file"});
  }
  if (!said.empty()) words.unit = said.front().second;
}

std::string unit_text(const std::string& unit) { return unit.empty() ? "kelvin, as in files that name no unit" : unit; }
bool same_unit(const std::string& a, const std::string& b) { return (a.empty() ? "K" : a) == (b.empty() ? "K" : b); }

std::string range_text(const std::vector<double>& mhz) { return fixed(mhz.front(), 3) + " to " + fixed(mhz.back(), 3) + " MHz"; }

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Returns a tolerance: two files have the same channels if their frequencies differ by at most this.
double tolerance(const std::vector<double>& mhz) {
  double least = std::numeric_limits<double>::max();
  for (std::size_t i = 1; i < mhz.size(); ++i) least = std::min(least, std::abs(mhz[i] - mhz[i - 1]));
  return mhz.size() < 2 ? kSameMhz : std::max(kSameMhz * std::min(1.0, least), kSameFrequency * least);
}

// The median step along RA, between -180 and 180 degrees. Files are compared only by this step. The first RA of a file does not
// matter, because samples are rolled along RA.
double step_of(const std::vector<double>& ra) {
  std::vector<double> steps;
  for (std::size_t i = 1; i < ra.size(); ++i) steps.push_back(std::remainder(ra[i] - ra[i - 1], kTurn));
  if (steps.empty()) return 0;
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end());
  return steps[steps.size() / 2];
}

struct Said {
  const hdf5::File* file;
  SkyWords words;
};

void compare(const Said& first, const Said& other, std::vector<Problem>& problems) {
  const SkyWords& a = first.words;
  const SkyWords& b = other.words;
  const std::string name = name_of_file(*other.file), first_name = name_of_file(*first.file);
  const std::string where = other.file->path().string();
  if (!a.freq_mhz.empty() && a.freq_mhz.size() == b.freq_mhz.size() &&
      largest_difference(a.freq_mhz, b.freq_mhz) > tolerance(a.freq_mhz)) {
    std::vector<double> reversed(b.freq_mhz.rbegin(), b.freq_mhz.rend());
    const bool turned = largest_difference(a.freq_mhz, reversed) <= tolerance(a.freq_mhz);
    problems.push_back({name + " has channels from " + range_text(b.freq_mhz) + " (" + b.freq_from + "), but " + first_name +
                            " from " + range_text(a.freq_mhz) + " (" + a.freq_from + ")" +
                            (turned ? ": the same channels in reverse order" : ""),
                        where,
                        turned ? "reverse the channels of one of the two files, in its cube and its axis"
                               : "give signal and foreground the same channels: regrid or remove the file"});
  }
  if (a.ra.size() > 1 && a.ra.size() == b.ra.size() &&
      std::abs(step_of(a.ra) - step_of(b.ra)) > kSameStep * std::abs(step_of(a.ra))) {
    problems.push_back({name + " has RA in steps of " + significant(step_of(b.ra), 6) + " degrees, but " + first_name +
                            " in steps of " + significant(step_of(a.ra), 6),
                        where, "give signal and foreground the same grid along RA: regrid or remove the file"});
  }
  if (!same_unit(a.unit, b.unit)) {
    problems.push_back({name + " is in " + unit_text(b.unit) + ", " + first_name + " in " + unit_text(a.unit), where,
                        "convert signal and foreground to the same unit"});
  }
}

// Adds lines such as "/index_map/freq can't be read: a compound (4 of 4 files, the first: signal/s0.h5)".
void note_unread(const std::vector<Said>& all, std::vector<std::string>& notices) {
  std::map<std::string, std::pair<std::size_t, const hdf5::File*>> lines;
  for (const Said& said : all) {
    for (const std::string& line : said.words.unread) ++lines.try_emplace(line, 0, said.file).first->second.first;
  }
  for (const auto& [line, count] : lines) {
    notices.push_back(line + " (" + std::to_string(count.first) + " of " + std::to_string(all.size()) +
                      " files, the first: " + name_of_file(*count.second) + ")");
  }
}

}  // namespace

std::string read_as(const SkyWords& words, const std::string& silent_band) {
  std::string text = "channels " + (words.freq_mhz.empty() ? silent_band : axis_text(words.freq_mhz, "MHz"));
  if (!words.freq_mhz.empty() && words.freq_from != kFrequencies) text += " (" + words.freq_from + ")";
  text += words.ra.empty() ? ", RA not said" : ", RA " + axis_text(words.ra, "degrees", kTurn);
  return text + (words.unit.empty() ? ", kelvin (no unit given)" : ", in " + words.unit);
}

SkyWords words_of(const hdf5::File& file, const std::string& cube, const Shape& shape, std::vector<Problem>& problems) {
  SkyWords words;
  take_frequencies(file, shape[1], words, problems);
  words.ra = numbers_of(file, kRightAscension, shape[2], "RA samples", words, problems);
  const std::string angle = to_lower(hdf5::unit_attribute(file, kRightAscension));
  if (angle.starts_with("rad")) {
    for (double& value : words.ra) value *= 180 / std::numbers::pi;
  } else if (angle.starts_with("h")) {
    for (double& value : words.ra) value *= 15;
  }
  take_unit(file, cube, words, problems);
  return words;
}

SkyAxes compared_axes(const std::vector<NamedSky>& files, const std::string& cube, const std::string& default_band,
                      std::vector<Problem>& problems) {
  std::vector<Said> all;
  all.reserve(files.size());
  for (const auto& [file, shape] : files) all.push_back({file, words_of(*file, cube, shape, problems)});
  const auto first_with = [&](auto SkyWords::*member) {
    return std::find_if(all.begin(), all.end(), [&](const Said& said) { return !(said.words.*member).empty(); });
  };
  SkyAxes axes;
  if (all.empty()) return axes;
  const auto channels = first_with(&SkyWords::freq_mhz);
  const auto ra = first_with(&SkyWords::ra);
  Said first{all.front().file, {}};
  first.words.unit = all.front().words.unit;
  for (const Said& said : all) {
    // Compares channels and RA of each file with those of the first file that has them, and the unit with that of the first
    // file.
    if (channels != all.end())
      compare({channels->file, {channels->words.freq_mhz, channels->words.freq_from, {}, said.words.unit, {}}}, said, problems);
    if (ra != all.end()) compare({ra->file, {{}, "", ra->words.ra, said.words.unit, {}}}, said, problems);
    compare(first, said, problems);
  }
  axes.words.unit = all.front().words.unit;
  if (ra != all.end()) axes.words.ra = ra->words.ra;
  note_unread(all, axes.notices);
  const auto silent = std::count_if(all.begin(), all.end(), [](const Said& said) { return said.words.freq_mhz.empty(); });
  if (channels != all.end()) {
    axes.words.freq_mhz = channels->words.freq_mhz;
    axes.words.freq_from = channels->words.freq_from;
    if (channels->words.freq_from != kFrequencies || silent > 0) {
      axes.notices.push_back("frequencies are " + range_text(axes.words.freq_mhz) + ", of " + channels->words.freq_from + " in " +
                             name_of_file(*channels->file) +
                             (silent > 0 ? "; " + std::to_string(silent) + " of " + std::to_string(all.size()) +
                                               " files state no frequencies, so the same frequencies are assumed for these files"
                                         : ""));
    }
  } else if (std::any_of(all.begin(), all.end(), [](const Said& said) { return !said.words.unread.empty(); })) {
    axes.notices.push_back("frequencies are taken from recipe.band_mhz: " + default_band);
  }
  return axes;
}

}  // namespace millrace::recipes::cosmology
