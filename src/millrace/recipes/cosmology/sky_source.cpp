#include "millrace/recipes/cosmology/sky_source.h"

#include <array>
#include <cmath>
#include <cstring>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"

namespace millrace::recipes::cosmology {
namespace {

constexpr std::uint64_t kForeground = 0;  // operations of a sample's generator
constexpr std::uint64_t kRoll = 1;

// The first of `count` numbers that is not finite, or -1. Sums of finite halves stay finite, so one pass without a branch
// suffices.
template <class T>
std::int64_t first_not_finite(const T* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return -1;
}

// out (+)= the numbers, each row of `row` numbers rolled by `roll` to the right.
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

void SkySource::refuse_value(const data::Hdf5File& file, std::int64_t place, double value) const {
  const Shape& shape = fields_[0].shape;
  const std::int64_t pixel = place / 2;
  throw DataError({file.path().filename().string() + " " + options_.dataset + "[" +
                       std::to_string(pixel / (shape[1] * shape[2])) + "," + std::to_string(pixel / shape[2] % shape[1]) + "," +
                       std::to_string(pixel % shape[2]) + "] is " + (std::isnan(value) ? "nan" : "inf"),
                   file.path().string(), "repair the file, or set data.bad_samples=\"skip\" (it is counted and logged)"});
}

void SkySource::read_file(const data::Hdf5File& file, std::int64_t roll, bool adds, float* out) const {
  const Shape& shape = fields_[0].shape;
  const std::array<std::int64_t, 3> offset{0, 0, 0};
  const std::int64_t row = 2 * shape[2];
  const std::int64_t count = shape[0] * shape[1] * row;
  const auto take = [&]<class T>(std::vector<T>& values) {
    values.resize(static_cast<std::size_t>(count));
    file.read(options_.dataset, offset, shape, std::as_writable_bytes(std::span(values)));
    if (const std::int64_t bad = first_not_finite(values.data(), count); bad >= 0)
      refuse_value(file, bad, static_cast<double>(values[static_cast<std::size_t>(bad)]));
    deliver(values.data(), shape[0] * shape[1], row, 2 * roll, adds, out);
  };
  static thread_local std::vector<double> wide;
  static thread_local std::vector<float> narrow;
  if (file.dataset(options_.dataset).dtype == DType::c128) {
    take(wide);
  } else {
    take(narrow);
  }
}

void SkySource::read(std::span<const std::int64_t> indices, data::Rows rows, const data::ReadRandom& random) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    auto* x = reinterpret_cast<float*>(rows.row(0, i, fields_[0].bytes()));
    auto* y = reinterpret_cast<float*>(rows.row(1, i, fields_[1].bytes()));
    const auto drawn = static_cast<std::size_t>(random(i, kForeground).below(files_.foreground.size()));
    const std::int64_t roll =
        options_.rolls ? static_cast<std::int64_t>(random(i, kRoll).below(static_cast<std::uint64_t>(options_.ra_keep))) : 0;
    read_file(*files_.signal[static_cast<std::size_t>(indices[i])], roll, false, y);
    std::memcpy(x, y, fields_[0].bytes());
    read_file(*files_.foreground[drawn], roll, true, x);
  }
}

}  // namespace millrace::recipes::cosmology
