#include "recipes/neural_response/sessions/session_hdf5.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/hdf5/remedy.h"

namespace millrace::recipes::neural_response {
namespace {

constexpr std::int64_t kRowsAtOnce = 4096;
// A data set may have at most this many numbers for each byte of its file, plus kFree. No compression of real data needs more.
constexpr std::int64_t kMostGain = 4096;
constexpr std::int64_t kFree = std::int64_t{1} << 20;

bool is_real(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::u16:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
    case DType::f32:
    case DType::f64:
      return true;
    default:
      return false;
  }
}

template <class Number>
void widen(std::span<const std::byte> bytes, std::vector<double>& out) {
  out.resize(bytes.size() / sizeof(Number));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Number value{};
    std::memcpy(&value, bytes.data() + i * sizeof(Number), sizeof(Number));
    out[i] = static_cast<double>(value);
  }
}

void widen(DType dtype, std::span<const std::byte> bytes, std::vector<double>& out) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return widen<std::uint8_t>(bytes, out);
    case DType::i8:
      return widen<std::int8_t>(bytes, out);
    case DType::i16:
      return widen<std::int16_t>(bytes, out);
    case DType::u16:
      return widen<std::uint16_t>(bytes, out);
    case DType::i32:
      return widen<std::int32_t>(bytes, out);
    case DType::u32:
      return widen<std::uint32_t>(bytes, out);
    case DType::i64:
      return widen<std::int64_t>(bytes, out);
    case DType::u64:
      return widen<std::uint64_t>(bytes, out);
    case DType::f64:
      return widen<double>(bytes, out);
    default:
      return widen<float>(bytes, out);
  }
}

std::int64_t columns_of(const hdf5::Dataset& set) { return set.shape.size() < 2 ? 1 : set.shape[1]; }

// Calls take(t, row) for each row of (T) or (T, columns). Reads some thousand rows at once.
template <class Take>
void each_row(const hdf5::File& file, const hdf5::Dataset& set, const Take& take) {
  const std::int64_t columns = columns_of(set);
  std::vector<std::byte> bytes;
  std::vector<double> values;
  for (std::int64_t first = 0; first < set.shape[0]; first += kRowsAtOnce) {
    std::vector<std::int64_t> offset(set.shape.size(), 0);
    std::vector<std::int64_t> count(set.shape.begin(), set.shape.end());
    offset[0] = first;
    count[0] = std::min(kRowsAtOnce, set.shape[0] - first);
    bytes.resize(static_cast<std::size_t>(count[0] * columns) * size_of(set.dtype));
    file.read(set.name, offset, count, bytes);
    widen(set.dtype, bytes, values);
    for (std::int64_t r = 0; r < count[0]; ++r)
      take(first + r,
           std::span<const double>(values).subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns)));
  }
}

[[noreturn]] void refuse_number(const hdf5::File& file, const hdf5::Dataset& set, std::int64_t t, std::int64_t column,
                                double value, const std::string& next) {
  const std::string at = set.shape.size() < 2 ? std::to_string(t) : std::to_string(t) + "," + std::to_string(column);
  const std::string text = std::isnan(value) ? "nan" : std::isinf(value) ? (value < 0 ? "-inf" : "inf") : significant(value, 6);
  throw DataError({short_name(file) + " " + set.name + "[" + at + "] is " + text, file.path().string(), next});
}

void check_columns(const hdf5::File& file, const hdf5::Dataset& set, std::span<const std::int64_t> columns) {
  for (const std::int64_t column : columns) {
    if (column < columns_of(set)) continue;
    throw DataError(
        {"cid " + std::to_string(column) + ", " + set.name.substr(1) + " has " + std::to_string(columns_of(set)) + " columns",
         file.path().string(), "correct the session's cids: they count from 0"});
  }
}

// Returns the columns, summed over groups of `ratio` rows. The summands are the results of take(t, column, value).
template <class Take>
Series read_columns(const hdf5::File& file, const hdf5::Dataset& set, std::span<const std::int64_t> columns, std::int64_t ratio,
                    const Take& take) {
  check_columns(file, set, columns);
  Series series{set.shape[0] / ratio, static_cast<std::int64_t>(columns.size()), {}};
  series.values.resize(static_cast<std::size_t>(series.rows * series.columns));
  each_row(file, set, [&](std::int64_t t, std::span<const double> row) {
    float* out = t / ratio < series.rows ? series.row(t / ratio) : nullptr;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double value = row[static_cast<std::size_t>(columns[c])];
      const double taken = take(t, columns[c], value);
      if (out != nullptr) out[c] += static_cast<float>(taken);
    }
  });
  return series;
}

void fill_gaps(Series& series) {
  for (std::int64_t c = 0; c < series.columns; ++c) {
    std::int64_t t = 0;
    while (t < series.rows && std::isnan(series.row(t)[c])) ++t;
    float latest = t < series.rows ? series.row(t)[c] : 0.0F;
    for (t = 0; t < series.rows; ++t) {
      float& value = series.row(t)[c];
      if (std::isnan(value)) value = latest;
      latest = value;
    }
  }
}

}  // namespace

std::string short_name(const hdf5::File& file) {
  return (file.path().parent_path().filename() / file.path().filename()).string();
}

bool has_covariate(const hdf5::File& file, const std::string& name) {
  const auto sets = file.datasets();
  return std::any_of(sets.begin(), sets.end(), [&name](const auto& set) { return set.name == name; });
}

const hdf5::Dataset& covariate_of(const hdf5::File& file, const std::string& name, std::size_t least, std::size_t most) {
  const std::string where = file.path().string();
  const std::string file_name = short_name(file);
  const auto unreadable = file.unreadable();
  const auto bad =
      std::find_if(unreadable.begin(), unreadable.end(), [&name](const hdf5::Unreadable& set) { return set.name == name; });
  if (bad != unreadable.end()) {
    std::string remedy = hdf5::remedy_for(bad->reason, file.path());
    if (remedy.empty()) remedy = "write it anew as plain numbers";
    throw DataError({file_name + ": " + name + " can't be read: " + bad->reason, where, remedy});
  }
  if (!has_covariate(file, name)) {
    const std::string has = joined(file.datasets(), ", ", &hdf5::Dataset::name);
    throw DataError({file_name + " has no " + name + " (has: " + (has.empty() ? "nothing" : has) + ")", where,
                     "write the session's files anew; their datasets are listed in the recipe's README"});
  }
  const hdf5::Dataset& set = file.dataset(name);
  if (set.shape.size() < least || set.shape.size() > most) {
    const std::string axes = least == most ? std::to_string(least) : std::to_string(least) + " or " + std::to_string(most);
    throw DataError(
        {file_name + ": " + name + " is " + to_text(set.shape) + ", expected " + axes + (most == 1 ? " axis" : " axes"), where,
         "the first axis is time, in bins at the source rate"});
  }
  if (!is_real(set.dtype)) {
    throw DataError({file_name + ": " + name + " is " + std::string(name_of(set.dtype)) + ", expected real numbers", where,
                     "write it anew as real numbers"});
  }
  const auto count = element_count(set.shape);
  const auto size = static_cast<std::int64_t>(std::min<std::uint64_t>(file.size(), std::uint64_t{1} << 50));
  if (!count || *count / kMostGain > size + kFree / kMostGain) {
    throw DataError({file_name + ": " + name + " claims to be " + to_text(set.shape) + ", but the file has only " +
                         human_bytes(static_cast<double>(file.size())),
                     where, "the file is damaged: write it anew"});
  }
  return set;
}

bool Gaps::may_hold(std::int64_t t) const {
  const auto group = static_cast<std::size_t>(t / ratio);
  return group >= dpi_valid.size() || !(dpi_valid[group] > 0);
}

Series read_series(const hdf5::File& file, const std::string& name, Gaps* gaps) {
  const hdf5::Dataset& set = covariate_of(file, name, 1, 2);
  Series series{set.shape[0], columns_of(set), {}};
  series.values.reserve(static_cast<std::size_t>(series.rows * series.columns));
  const std::int64_t known = gaps == nullptr ? 0 : gaps->found;
  each_row(file, set, [&](std::int64_t t, std::span<const double> row) {
    bool is_gap = false;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool may_be_nan = std::isnan(row[c]) && gaps != nullptr && gaps->may_hold(t);
      if (!std::isfinite(row[c]) && !may_be_nan)
        refuse_number(file, set, t, static_cast<std::int64_t>(c), row[c], "mark the bin with dpi_valid 0, or fill the gap");
      series.values.push_back(static_cast<float>(row[c]));
      is_gap = is_gap || may_be_nan;
    }
    if (is_gap) ++gaps->found;
  });
  if (gaps != nullptr && gaps->found > known) fill_gaps(series);
  return series;
}

std::vector<std::int64_t> read_wholes(const hdf5::File& file, const std::string& name) {
  const hdf5::Dataset& set = covariate_of(file, name, 1, 1);
  std::vector<std::int64_t> values;
  values.reserve(static_cast<std::size_t>(set.shape[0]));
  each_row(file, set, [&](std::int64_t t, std::span<const double> row) {
    constexpr double kMost = 9007199254740992.0;
    if (!(std::abs(row[0]) <= kMost) || std::floor(row[0]) != row[0])
      refuse_number(file, set, t, 0, row[0], "number the trials with whole numbers");
    values.push_back(static_cast<std::int64_t>(row[0]));
  });
  return values;
}

std::vector<double> read_seconds(const hdf5::File& file, const std::string& name) {
  const hdf5::Dataset& set = covariate_of(file, name, 1, 1);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(set.shape[0]));
  each_row(file, set, [&values](std::int64_t, std::span<const double> row) { values.push_back(row[0]); });
  return values;
}

Series read_counts(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns, Gaps& gaps) {
  const hdf5::Dataset& set = covariate_of(file, name, 2, 2);
  std::int64_t latest = -1;
  return read_columns(file, set, columns, gaps.ratio, [&](std::int64_t t, std::int64_t column, double value) {
    if (std::isnan(value) && gaps.may_hold(t)) {
      if (t != std::exchange(latest, t)) ++gaps.found;
      return 0.0;
    }
    if (!std::isfinite(value) || value < 0)
      refuse_number(file, set, t, column, value, "counts are 0 or more: repair the file, or take the unit out of cids");
    return value;
  });
}

Series read_percent(const hdf5::File& file, const std::string& name, std::span<const std::int64_t> columns, std::int64_t ratio) {
  const hdf5::Dataset& set = covariate_of(file, name, 2, 2);
  Series series = read_columns(file, set, columns, ratio, [](std::int64_t, std::int64_t, double value) { return value; });
  for (float& value : series.values) value /= static_cast<float>(ratio);
  return series;
}

}  // namespace millrace::recipes::neural_response
