// A sample as a user's function sees it: its fields by name, and its own random numbers.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "millrace/base/field.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

template <class T>
[[nodiscard]] constexpr DType dtype_of() noexcept {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>) return DType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  if constexpr (std::is_same_v<T, std::int16_t>) return DType::i16;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DType::u16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DType::u32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DType::u64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DType::c64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DType::c128;
}

// Returns the index of the field `name`. Throws a ConfigError with a list of the fields if there is no such field, or if its
// dtype is not `dtype`.
[[nodiscard]] std::size_t field_called(std::string_view name, std::span<const Field> fields);
[[nodiscard]] std::size_t field_called(std::string_view name, std::span<const Field> fields, DType dtype);

// The fields of a sample. The memory is valid during the call; each field is contiguous, last axis fastest.
template <class Byte>
class SampleOf {
 public:
  SampleOf(std::span<const Field> fields, std::span<Byte* const> data) noexcept : fields_(fields), data_(data) {}
  [[nodiscard]] std::span<const Field> fields() const noexcept { return fields_; }
  [[nodiscard]] Byte* data(std::size_t field) const noexcept { return data_[field]; }
  // Returns all numbers of a field: values<float>("image"). f16 and bf16 have no C++ type here, so use data() for them. Throws
  // ConfigError if there is no such field, or if its dtype is not that of T.
  template <class T>
  [[nodiscard]] auto values(std::string_view name) const {
    using Value = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    const std::size_t field = field_called(name, fields_, dtype_of<T>());
    return std::span<Value>(reinterpret_cast<Value*>(data_[field]), fields_[field].bytes() / sizeof(T));
  }

 private:
  std::span<const Field> fields_;
  std::span<Byte* const> data_;
};

using Sample = SampleOf<const std::byte>;
using MutableSample = SampleOf<std::byte>;

// The random numbers of a sample. The numbers depend only on the run's seed, the epoch and the sample's position in the epoch.
// So they are the same for any number of readers, with and without a cache, and after a resume.
class SampleRandom {
 public:
  // `one`: the random numbers for a read of one index.
  explicit SampleRandom(const ReadRandom& one) noexcept : one_(one) {}
  // Returns a stream of random numbers, from its beginning. `operation` selects independent streams for independent uses (crop,
  // flip, ...).
  [[nodiscard]] Philox operator()(std::uint64_t operation = 0) const noexcept { return one_(0, operation); }

 private:
  ReadRandom one_;
};

}  // namespace millrace::data
