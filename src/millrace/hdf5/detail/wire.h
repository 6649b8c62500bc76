// Messages between this process and millrace-hdf5: frames of a length and bytes, little-endian, over one socket. Both ends
// compare every length with the bytes that exist.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"

namespace millrace::hdf5::detail {

static_assert(std::endian::native == std::endian::little, "the frames and HDF5's fast path are little-endian");

// The number of the first descriptor that a child gets in addition to its socket. The socket is its standard input and output.
inline constexpr int kFirstFile = 3;
inline constexpr std::size_t kFilesAtOnce = 64;  // files in one message; the kernel allows 253
// The version of the answers. Increase this number when the bytes of an answer change, so that indices of files (detail/index.h)
// are made again.
inline constexpr std::uint32_t kAnswerVersion = 3;
inline constexpr std::uint64_t kMaxFrame = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kNoAddress = std::numeric_limits<std::uint64_t>::max();

// First byte of an answer. `died` is followed by two u32: a signal (or 0), and an exit status.
enum class Answer : std::uint8_t { ok, refused, missing, died };

enum class Codec : std::uint8_t { none, deflate, lz4, zstd };

class WireWriter {
 public:
  template <class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>) WireWriter& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  WireWriter& text(std::string_view value) {
    put(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  template <class T>
  WireWriter& list(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    if (!values.empty()) bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

// Throws DataError if the bytes end before the requested value.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = get<std::uint32_t>();
    return {take(size), size};
  }
  std::string_view view() {  // like text(), but the result refers to the source bytes
    const auto size = get<std::uint32_t>();
    return {take(size), size};
  }
  template <class T>
  std::vector<T> list() {
    const auto count = get<std::uint64_t>();
    if (count > bytes_.size() / sizeof(T)) cut_off();
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  [[nodiscard]] std::string_view rest() const noexcept { return bytes_; }

 private:
  [[noreturn]] static void cut_off() {
    throw DataError({.what = "millrace-hdf5 and this program do not understand each other",
                     .where = "a message between them is cut off",
                     .next = "build and install both from the same sources"});
  }
  const char* take(std::size_t count) {
    if (count > bytes_.size()) cut_off();
    const char* at = bytes_.data();
    bytes_.remove_prefix(count);
    return at;
  }
  std::string_view bytes_;
};

// The place of a chunk in the file. Address kNoAddress: the chunk was never written. If bit i of `mask` is set, filter i was
// skipped.
struct Chunk {
  std::uint64_t address = kNoAddress;
  std::uint32_t size = 0;
  std::uint32_t mask = 0;
};

}  // namespace millrace::hdf5::detail
