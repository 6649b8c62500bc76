#include "millrace/cli/inspect/value_stats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "millrace/base/error.h"

namespace millrace {
namespace {

constexpr std::size_t kBlock = 2048;  // number of values whose squared distances from one mean are summed
constexpr std::size_t kSlots = std::size_t{1} << 17U;
static_assert(kSlots > static_cast<std::size_t>(kMostDistinct), "the table of different values always has a free place");

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double of_bf16(const std::byte* at) noexcept { return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(at)} << 16U); }

double of_f16(const std::byte* at) noexcept {
  constexpr int kBias = 15, kDigits = 10;
  const std::uint32_t bits = load<std::uint16_t>(at);
  const std::uint32_t exponent = bits >> 10U & 0x1FU, digits = bits & 0x3FFU;
  double size = 0;
  if (exponent == 0x1F) {
    size = digits == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<double>(digits), 1 - kBias - kDigits);
  } else {
    size = std::ldexp(static_cast<double>(digits + 1024U), static_cast<int>(exponent) - kBias - kDigits);
  }
  return (bits & 0x8000U) != 0 ? -size : size;
}

// The magnitude of a complex number. NaN if one of its two parts is NaN; hypot(inf, NaN) would give infinity.
template <class T>
double magnitude(const std::byte* at) noexcept {
  const auto re = static_cast<double>(load<T>(at)), im = static_cast<double>(load<T>(at + sizeof(T)));
  return std::isnan(re) || std::isnan(im) ? std::numeric_limits<double>::quiet_NaN() : std::hypot(re, im);
}

}  // namespace

bool ValueSummary::is_whole() const noexcept {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::c64:
    case DType::c128:
      return false;
    default:
      return true;
  }
}

ValueStats::ValueStats(DType dtype) : dtype_(dtype) {}

// Combines the mean and the squared distances of a block with those of the earlier blocks (Chan, Golub and LeVeque, 1983).
void ValueStats::take_block(std::span<const double> block) {
  if (block.empty()) return;
  const auto count = static_cast<double>(block.size());
  double sum = 0;
  for (const double value : block) sum += value;
  const double mean = sum / count;
  double squares = 0;
  for (const double value : block) squares += (value - mean) * (value - mean);
  const auto before = static_cast<double>(taken_);
  taken_ += static_cast<std::int64_t>(block.size());
  const double apart = mean - mean_;
  const double share = count / static_cast<double>(taken_);
  squares_ += squares + (before == 0 ? 0 : apart * apart * before * share);
  mean_ = before == 0 ? mean : mean_ + apart * share;
}

void ValueStats::note_distinct(std::uint64_t key) {
  if (distinct_ > kMostDistinct) return;
  if (table_.empty()) {
    table_.resize(kSlots);
    used_.resize(kSlots);
  }
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  std::size_t slot = key * kGolden >> (64 - 17);
  while (used_[slot] && table_[slot] != key) slot = (slot + 1) % kSlots;
  if (used_[slot]) return;
  used_[slot] = true;
  table_[slot] = key;
  ++distinct_;
}

template <class T>
void ValueStats::add_whole(std::span<const std::byte> elements) {
  std::array<double, kBlock> block;
  const std::size_t count = elements.size() / sizeof(T);
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  auto& [least, greatest] = std::get<Bounds<Wide>>(bounds_);
  std::optional<T> last;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    for (std::size_t i = 0; i < size; ++i) {
      T value = load<T>(elements.data() + (begin + i) * sizeof(T));
      if (dtype_ == DType::boolean) value = value != 0 ? T{1} : T{0};
      block[i] = static_cast<double>(value);
      if (last == value) continue;
      last = value;
      const bool first = count_ == 0 && begin + i == 0;
      const auto wide = static_cast<Wide>(value);  // NOLINT(bugprone-signed-char-misuse): a number, not a character
      if (first || wide < least) least = wide;
      if (first || wide > greatest) greatest = wide;
      note_distinct(static_cast<std::uint64_t>(value));
    }
    take_block(std::span(block).first(size));
  }
  count_ += static_cast<std::int64_t>(count);
}

template <class Convert>
void ValueStats::add_real(std::span<const std::byte> elements, std::size_t width, Convert value_at) {
  std::array<double, kBlock> block;
  const std::size_t count = elements.size() / width;
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    std::size_t finite = 0;
    for (std::size_t i = begin; i < std::min(count, begin + kBlock); ++i) {
      const double value = value_at(elements.data() + i * width);
      if (std::isfinite(value)) {
        block[finite++] = value;
      } else {
        ++(std::isnan(value) ? nans_ : infinities_);
      }
    }
    if (finite == 0) continue;
    const auto [low, high] = std::minmax_element(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(finite));
    least_ = taken_ == 0 ? *low : std::min(least_, *low);
    greatest_ = taken_ == 0 ? *high : std::max(greatest_, *high);
    take_block(std::span(block).first(finite));
  }
  count_ += static_cast<std::int64_t>(count);
}

void ValueStats::add(std::span<const std::byte> elements) {
  const std::size_t width = size_of(dtype_);
  MR_CHECK(elements.size() % width == 0, "only whole elements are added");
  switch (dtype_) {
    case DType::boolean:
    case DType::u8:
      return add_whole<std::uint8_t>(elements);
    case DType::i8:
      return add_whole<std::int8_t>(elements);
    case DType::i16:
      return add_whole<std::int16_t>(elements);
    case DType::u16:
      return add_whole<std::uint16_t>(elements);
    case DType::i32:
      return add_whole<std::int32_t>(elements);
    case DType::u32:
      return add_whole<std::uint32_t>(elements);
    case DType::i64:
      return add_whole<std::int64_t>(elements);
    case DType::u64:
      return add_whole<std::uint64_t>(elements);
    case DType::f16:
      return add_real(elements, width, of_f16);
    case DType::bf16:
      return add_real(elements, width, of_bf16);
    case DType::f32:
      return add_real(elements, width, [](const std::byte* at) { return static_cast<double>(load<float>(at)); });
    case DType::f64:
      return add_real(elements, width, load<double>);
    case DType::c64:
      return add_real(elements, width, magnitude<float>);
    case DType::c128:
      return add_real(elements, width, magnitude<double>);
  }
}

ValueSummary ValueStats::summary() const {
  ValueSummary result;
  result.dtype = dtype_;
  result.count = count_;
  result.nans = nans_;
  result.infinities = infinities_;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  result.mean = taken_ == 0 ? kNone : mean_;
  result.deviation = taken_ == 0 ? kNone : std::sqrt(squares_ / static_cast<double>(taken_));
  const bool is_signed = dtype_ == DType::i8 || dtype_ == DType::i16 || dtype_ == DType::i32 || dtype_ == DType::i64;
  if (result.is_whole() && distinct_ <= kMostDistinct) result.distinct = distinct_;
  if (taken_ == 0) return result;
  if (!result.is_whole()) {
    result.least = least_;
    result.greatest = greatest_;
  } else if (is_signed) {
    const auto& [least, greatest] = std::get<Bounds<std::int64_t>>(bounds_);
    result.least = least;
    result.greatest = greatest;
  } else {
    const auto& [least, greatest] = std::get<Bounds<std::uint64_t>>(bounds_);
    result.least = least;
    result.greatest = greatest;
  }
  return result;
}

ValueSummary summary_of(DType dtype, std::span<const std::byte> elements) {
  ValueStats stats(dtype);
  stats.add(elements);
  return stats.summary();
}

}  // namespace millrace
