#include "recipes/cosmology/originals/uvh5_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "millrace/base/axis_text.h"
#include "millrace/base/format.h"
#include "millrace/data/files/folder.h"
#include "millrace/hdf5/remedy.h"
#include "millrace/hdf5/stored_numbers.h"
#include "recipes/cosmology/sky_problems.h"

namespace millrace::recipes::cosmology::uvh5 {
namespace {

constexpr auto kVisibilities = "/Data/visdata";
constexpr std::uint64_t kMostPacked = 1100;  // no supported compression has a larger ratio of decompressed to stored bytes

const std::vector<std::pair<std::int64_t, std::string>>& polarisation_names() {
  static const std::vector<std::pair<std::int64_t, std::string>> kNames = {{-8, "yx"}, {-7, "xy"}, {-6, "yy"}, {-5, "xx"},
                                                                           {-4, "lr"}, {-3, "rl"}, {-2, "ll"}, {-1, "rr"},
                                                                           {1, "pi"},  {2, "pq"},  {3, "pu"},  {4, "pv"}};
  return kNames;
}

// Reads the header of a file and collects its faults.
class HeaderReader {
 public:
  HeaderReader(const hdf5::File& file, std::vector<Problem>& problems) : file_(file), problems_(problems) {}

  [[nodiscard]] const hdf5::Dataset* find(const std::string& name) const {
    const auto sets = file_.datasets();
    const auto it = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == name; });
    return it == sets.end() ? nullptr : &*it;
  }

  void refuse(const std::string& what, const std::string& next) {
    problems_.push_back({file_.path().filename().string() + ": " + what, file_.path().string(), next});
  }

  // Reads the values of a data set as T. If the data set is missing (unless `optional`), does not hold plain numbers, or is
  // larger than the file can hold, adds a problem and returns an empty list.
  template <class T>
  std::vector<T> numbers(const std::string& name, bool optional = false) {
    const hdf5::Dataset* set = find(name);
    if (set == nullptr) {
      const std::string reason = reason_of(name);
      if (!reason.empty())
        refuse(name + " can't be read: " + reason, "write the file anew with pyuvdata");
      else if (!optional)
        refuse(name + " is missing", "is it a uvh5 file? millrace inspect shows what it holds");
      return {};
    }
    const auto count = element_count(set->shape);
    if (!count || static_cast<std::uint64_t>(*count) > kMostPacked * file_.size()) {
      refuse(name + " is " + to_text(set->shape) + ", more than the file can hold", "write the file anew");
      return {};
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(*count) * size_of(set->dtype));
    file_.read(name, Shape(set->shape.size(), 0), set->shape, bytes);
    std::vector<T> values(static_cast<std::size_t>(*count));
    if (!convert_numbers<T>(set->dtype, bytes, values))
      refuse(name + " is " + std::string(name_of(set->dtype)) + ", not plain numbers", "write the file anew with pyuvdata");
    return values;
  }

  [[nodiscard]] std::string text(const std::string& name) const {
    const hdf5::Unreadable* set = unread(name);
    return set == nullptr ? std::string() : printable(set->text);
  }

  // Returns the reason why a data set can't be read; "" if the data set can be read or does not exist.
  [[nodiscard]] std::string reason_of(const std::string& name) const {
    const hdf5::Unreadable* set = unread(name);
    return set == nullptr ? std::string() : set->reason;
  }

 private:
  [[nodiscard]] const hdf5::Unreadable* unread(const std::string& name) const {
    const auto sets = file_.unreadable();
    const auto it = std::find_if(sets.begin(), sets.end(), [&](const auto& set) { return set.name == name; });
    return it == sets.end() ? nullptr : &*it;
  }

  const hdf5::File& file_;
  std::vector<Problem>& problems_;
};

void check_visibilities(HeaderReader& reader, const Shape& wanted, Header& header) {
  const hdf5::Dataset* data = reader.find(kVisibilities);
  if (data == nullptr) {
    if (const std::string reason = reader.reason_of(kVisibilities); !reason.empty()) {
      std::string remedy = hdf5::remedy_for(reason, header.file->path());
      if (remedy.empty()) remedy = "write the file anew with pyuvdata, as complex64 or complex128";
      return reader.refuse(std::string(kVisibilities) + " can't be read: " + reason, remedy);
    }
    return reader.refuse(std::string(kVisibilities) + " is missing", "is it a uvh5 file? millrace inspect shows what it holds");
  }
  if (data->dtype != DType::c64 && data->dtype != DType::c128)
    return reader.refuse(std::string(kVisibilities) + " is " + std::string(name_of(data->dtype)) + ", not complex numbers",
                         "write the file anew with pyuvdata, as complex64 or complex128");
  header.wide = data->dtype == DType::c128;
  header.has_spectral_axis = data->shape.size() == 4 && data->shape[1] == 1;
  Shape shape = data->shape;
  if (header.has_spectral_axis) shape.erase(shape.begin() + 1);
  if (shape != wanted)
    return reader.refuse(std::string(kVisibilities) + " is " + to_text(data->shape) + ", the header describes " +
                             to_text(wanted) + " (rows, channels, polarisations)",
                         "the file was cut off or put together wrongly: write it anew");
  for (const auto& [name, there] : {std::pair{"/Data/flags", &header.has_flags}, {"/Data/nsamples", &header.has_samples}}) {
    const hdf5::Dataset* set = reader.find(name);
    if (set == nullptr) continue;
    *there = true;
    const bool flags = there == &header.has_flags;
    const bool fits = flags ? size_of(set->dtype) == 1 : is_real(set->dtype);
    if (set->shape != data->shape || !fits)
      reader.refuse(std::string(name) + " is " + std::string(name_of(set->dtype)) + " " + to_text(set->shape) + ", expected " +
                        (flags ? "bool " : "real numbers, ") + to_text(data->shape),
                    "write the file anew with pyuvdata");
  }
}

void read_places(HeaderReader& reader, Header& header) {
  const auto numbers = reader.numbers<std::int64_t>("/Header/antenna_numbers", true);
  const auto places = reader.numbers<double>("/Header/antenna_positions", true);
  if (numbers.empty() || places.size() != 3 * numbers.size()) return;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    header.places[numbers[i]] = {places[3 * i], places[3 * i + 1], places[3 * i + 2]};
  const auto latitude = reader.numbers<double>("/Header/latitude", true);
  const auto longitude = reader.numbers<double>("/Header/longitude", true);
  if (latitude.size() != 1 || longitude.size() != 1) {
    header.places.clear();
    return;
  }
  header.latitude = latitude[0];
  header.longitude = longitude[0];
}

bool all_finite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

std::optional<Header> read_header(const SkyFile& file, std::vector<Problem>& problems) {
  const std::size_t before = problems.size();
  HeaderReader reader(*file, problems);
  Header header;
  header.file = file;
  const auto first = reader.numbers<std::int64_t>("/Header/ant_1_array");
  const auto second = reader.numbers<std::int64_t>("/Header/ant_2_array");
  header.times = reader.numbers<double>("/Header/time_array");
  header.freq_hz = reader.numbers<double>("/Header/freq_array");
  header.polarisations = reader.numbers<std::int64_t>("/Header/polarization_array");
  header.unit = reader.text("/Header/vis_units");
  if (problems.size() > before) return std::nullopt;
  if (first.size() != second.size() || first.size() != header.times.size() || first.empty()) {
    reader.refuse("ant_1_array, ant_2_array and time_array have " + std::to_string(first.size()) + ", " +
                      std::to_string(second.size()) + " and " + std::to_string(header.times.size()) + " rows",
                  "the file was cut off or put together wrongly: write it anew");
    return std::nullopt;
  }
  for (std::size_t i = 0; i < first.size(); ++i) header.rows.emplace_back(first[i], second[i]);
  if (!all_finite(header.times))
    reader.refuse("/Header/time_array has numbers that are not finite", "write the file anew with pyuvdata");
  if (!all_finite(header.freq_hz))
    reader.refuse("/Header/freq_array has numbers that are not finite", "write the file anew with pyuvdata");
  check_visibilities(reader,
                     {static_cast<std::int64_t>(header.rows.size()), static_cast<std::int64_t>(header.freq_hz.size()),
                      static_cast<std::int64_t>(header.polarisations.size())},
                     header);
  read_places(reader, header);
  if (problems.size() > before) return std::nullopt;
  return header;
}

std::string polarisation_name(std::int64_t number) {
  for (const auto& [each, name] : polarisation_names()) {
    if (each == number) return name;
  }
  return "pol" + std::to_string(number);
}

std::optional<std::int64_t> polarisation_number(const std::string& name) {
  for (const auto& [number, each] : polarisation_names()) {
    if (each == name || std::to_string(number) == name) return number;
  }
  return std::nullopt;
}

std::int64_t exchanged(std::int64_t polarisation) {
  constexpr std::array<Baseline, 4> kPairs = {{{-7, -8}, {-8, -7}, {-3, -4}, {-4, -3}}};
  for (const auto& [from, to] : kPairs) {
    if (from == polarisation) return to;
  }
  return polarisation;
}

std::string header_text(const Header& header) {
  const std::vector<double>& freq = header.freq_hz;
  const int direction = direction_of(freq);
  return with_commas(std::ssize(header.rows)) + " rows, " + with_commas(std::ssize(freq)) + " channels " +
         fixed(freq.front() / 1e6, 3) + " to " + fixed(freq.back() / 1e6, 3) + " MHz" +
         (direction > 0     ? " ascending"
          : direction < 0   ? " descending"
          : freq.size() > 1 ? " in no order"
                            : "") +
         ", " + joined(header.polarisations, " ", polarisation_name) + ", " +
         (header.unit.empty() ? "no unit, taken as kelvin" : header.unit) + ", " + (header.wide ? "complex128" : "complex64");
}

std::string read_as(const hdf5::File& file) {
  const auto sets = file.datasets();
  if (std::ranges::find(sets, "/Header/ant_1_array", &hdf5::Dataset::name) == sets.end()) return "";
  std::vector<Problem> problems;
  // a pointer that does not own the file, because the caller owns it
  const auto header = read_header(SkyFile(SkyFile(), &file), problems);
  refuse_all(problems);
  if (!header || header->freq_hz.empty()) return "";
  std::vector<double> times = header->times;
  std::ranges::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const std::set<Baseline> baselines(header->rows.begin(), header->rows.end());
  std::string text = "uvh5: " + header_text(*header) + "; " + with_commas(std::ssize(baselines)) + " baselines, " +
                     with_commas(std::ssize(times)) + " times from JD " + fixed(times.front(), 5);
  if (times.size() > 1) {
    constexpr double kSecondsOfDay = 86400;
    text += ", " + significant((times.back() - times.front()) * kSecondsOfDay / static_cast<double>(times.size() - 1), 4) +
            " s apart on average";
  }
  return text + "; " + (header->has_flags ? "with" : "without") + " flags, " + (header->has_samples ? "with" : "without") +
         " nsamples";
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& word, std::vector<std::string>& notices) {
  if (!std::filesystem::is_directory(word)) return {word};
  data::FilesFound found = data::find_files(word, {".uvh5"});
  if (!found.left_out.empty()) notices.push_back(std::move(found.left_out));
  return std::move(found.files);
}

}  // namespace millrace::recipes::cosmology::uvh5
