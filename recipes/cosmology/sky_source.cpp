#include "recipes/cosmology/sky_source.h"

#include <array>
#include <cmath>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::uint64_t kForeground = 0;  // numbers that tell the uses of a sample's random generator apart
constexpr std::uint64_t kRoll = 1;

// Returns the index of the first of `count` numbers that is not finite, or -1.
template <class T>
std::int64_t first_not_finite(const T* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return -1;
}

// Writes the numbers to `out`, or adds them to `out` if `adds`. Each row of `row` numbers is rolled to the right by `roll`.
template <class T>
void deliver(const T* values, std::int64_t rows, std::int64_t row, std::int64_t roll, bool adds, float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = values + r * row;
    float* to = out + r * row;
    for (const auto& [begin, end, shift] :
         {std::array<std::int64_t, 3>{0, row - roll, roll}, std::array<std::int64_t, 3>{row - roll, row, roll - row}}) {
      if (adds) {
        for (std::int64_t i = begin; i < end; ++i) to[i + shift] += static_cast<float>(from[i]);
      } else {
        for (std::int64_t i = begin; i < end; ++i) to[i + shift] = static_cast<float>(from[i]);
      }
    }
  }
}

}  // namespace

SkySource::SkySource(SkyFiles files, const Shape& shape, SkyOptions options)
    : files_(std::move(files)), options_(std::move(options)) {
  MR_CHECK(!files_.signal.empty() && !files_.foreground.empty(), "a sky needs signal and foreground files");
  const Shape sample{shape[0], shape[1], options_.ra_keep};
  fields_ = {{"x", DType::c64, sample}, {"y", DType::c64, sample}};
  Sha256 digest;
  for (const auto* list : {&files_.signal, &files_.foreground}) {
    for (const SkyFile& file : *list) digest.update(file->path().filename().string() + "\n");
    digest.update("|");
  }
  digest.update(to_text(sample) + options_.dataset + (options_.rolls ? "rolls" : ""));
  fingerprint_ = "sky " + digest.hex();
}

std::vector<data::FileStamp> SkySource::stamps() const {
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> names;
  for (const auto& [list, role] : {std::pair{&files_.signal, "signal/"}, std::pair{&files_.foreground, "foreground/"}}) {
    for (const SkyFile& file : *list) {
      paths.push_back(file->path());
      names.push_back(role + file->path().filename().string());
    }
  }
  return data::stamps_of(paths, std::move(names));
}

void SkySource::refuse_value(const hdf5::File& file, std::int64_t place, double value) const {
  const Shape& shape = fields_[0].shape;
  const std::int64_t pixel = place / 2;
  throw DataError({file.path().filename().string() + " " + options_.dataset + "[" +
                       std::to_string(pixel / (shape[1] * shape[2])) + "," + std::to_string(pixel / shape[2] % shape[1]) + "," +
                       std::to_string(pixel % shape[2]) + "] is " + (std::isnan(value) ? "nan" : "inf"),
                   file.path().string(), "repair the file, or set data.bad_samples=\"skip\" (it is counted and logged)"});
}

void SkySource::read_file(const hdf5::File& file, std::int64_t roll, bool adds, float* out) const {
  const Shape& shape = fields_[0].shape;
  const std::array<std::int64_t, 3> offset{0, 0, 0};
  const std::int64_t row = 2 * shape[2];
  const std::int64_t count = shape[0] * shape[1] * row;
  const auto take = [&]<class T>(std::vector<T>& values) {
    values.resize(static_cast<std::size_t>(count));
    file.read(options_.dataset, offset, shape, std::as_writable_bytes(std::span(values)));
    if (const std::int64_t bad = first_not_finite(values.data(), count); bad >= 0)
      refuse_value(file, bad, static_cast<double>(values[static_cast<std::size_t>(bad)]));
    deliver(values.data(), rows_of_file(), row, 2 * roll, adds, out);
  };
  static thread_local std::vector<double> wide;
  static thread_local std::vector<float> narrow;
  if (file.dataset(options_.dataset).dtype == DType::c128) {
    take(wide);
  } else {
    take(narrow);
  }
}

const hdf5::File& SkySource::file_of(std::int64_t part) const {
  return part < size() ? *files_.signal[static_cast<std::size_t>(part)]
                       : *files_.foreground[static_cast<std::size_t>(part - size())];
}

std::int64_t SkySource::roll_of(const data::ReadRandom& random, std::size_t i) const {
  return options_.rolls ? static_cast<std::int64_t>(random(i, kRoll).below(static_cast<std::uint64_t>(options_.ra_keep))) : 0;
}

std::int64_t SkySource::parts() const { return size() + static_cast<std::int64_t>(files_.foreground.size()); }

void SkySource::parts_of(std::int64_t index, const data::ReadRandom& random, std::span<std::int64_t> parts) const {
  parts[0] = index;
  parts[1] = size() + static_cast<std::int64_t>(random(0, kForeground).below(files_.foreground.size()));
}

void SkySource::read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    auto* x = reinterpret_cast<float*>(rows.row(0, i, fields_[0].bytes()));
    auto* y = reinterpret_cast<float*>(rows.row(1, i, fields_[1].bytes()));
    std::array<std::int64_t, 2> parts{};
    parts_of(indices[i], random.part(i, 1), parts);
    const std::int64_t roll = roll_of(random, i);
    read_file(file_of(parts[0]), roll, false, y);
    std::memcpy(x, y, fields_[0].bytes());
    read_file(file_of(parts[1]), roll, true, x);
  }
}

void SkySource::load(std::int64_t part, std::span<std::byte> bytes) const {
  read_file(file_of(part), 0, false, reinterpret_cast<float*>(bytes.data()));
}

void SkySource::finish(std::int64_t, std::span<const std::span<const std::byte>> parts, data::Rows rows,
                       const data::ReadRandom& random) const {
  auto* x = reinterpret_cast<float*>(rows.row(0, 0, 0));
  auto* y = reinterpret_cast<float*>(rows.row(1, 0, 0));
  const std::int64_t row = 2 * fields_[0].shape[2];
  const std::int64_t roll = 2 * roll_of(random, 0);
  deliver(reinterpret_cast<const float*>(parts[0].data()), rows_of_file(), row, roll, false, y);
  std::memcpy(x, y, fields_[0].bytes());
  deliver(reinterpret_cast<const float*>(parts[1].data()), rows_of_file(), row, roll, true, x);
}

void SkySource::will_need(std::span<const std::int64_t> indices, const data::ReadRandom& random) const noexcept {
  constexpr std::array<std::int64_t, 3> kOffset{0, 0, 0};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    std::array<std::int64_t, 2> parts{};
    parts_of(indices[i], random.part(i, 1), parts);
    for (const std::int64_t part : parts) file_of(part).will_need(options_.dataset, kOffset, fields_[0].shape);
  }
}

std::string SkySource::describe(std::int64_t index) const { return file_of(index).path().string(); }

}  // namespace millrace::recipes::cosmology
