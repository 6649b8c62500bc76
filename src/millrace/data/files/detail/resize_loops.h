// The loops of resize_bicubic(): weighted sums of rows and of columns of bytes. Rows are apart by a pitch in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::data::detail {

inline constexpr int kWeightBits = 22;  // behind the point: 32 less 8 of a pixel and 2 for what overshoots
// Pitches of what resize_columns() reads are multiples of it; the bytes behind a row's end may hold anything.
inline constexpr std::size_t kColumnBlock = 32;

// Which of the old pixels a new one is made of, along one axis.
struct Taps {
  std::int64_t first = 0, count = 0;
};
struct ResizeAxis {
  std::vector<Taps> taps;             // of each new pixel
  std::vector<std::int32_t> weights;  // `most` of each
  std::size_t most = 0;
};

// What the loops of one set of instructions take.
inline constexpr std::size_t kResizedRows = 8;  // at once
struct RowWork {
  const std::byte* from[kResizedRows] = {};
  std::byte* to[kResizedRows] = {};
  std::size_t old_bytes = 0, channels = 0, new_pixels = 0;
  const Taps* taps = nullptr;
  const std::int32_t* weights = nullptr;
  std::size_t most = 0;
  std::byte *old_columns = nullptr, *new_columns = nullptr;  // room for whole blocks of 16 columns
};
struct ColumnWork {
  const std::byte* from = nullptr;  // the first old row of the new one
  std::size_t pitch = 0, bytes = 0;
  const std::int32_t* weights = nullptr;
  std::int64_t count = 0;
  std::byte* to = nullptr;
};
struct ResizeLoops {
  void (*eight_rows)(const RowWork& work);
  void (*new_row)(const ColumnWork& work);
};
namespace portable {
[[nodiscard]] ResizeLoops loops();
}
namespace avx2 {
[[nodiscard]] ResizeLoops loops();
}

// Rows of old pixels, `old_bytes` long, to rows of new ones. `channels` is 1 or 3.
void resize_rows(const std::byte* from, std::size_t from_pitch, std::size_t old_bytes, std::int64_t rows, std::size_t channels,
                 const ResizeAxis& axis, std::byte* to, std::size_t to_pitch);

// Old rows to new rows of `bytes`; `from` is the old row that taps call `first`.
void resize_columns(const std::byte* from, std::size_t from_pitch, std::int64_t first, std::size_t bytes, const ResizeAxis& axis,
                    std::byte* to, std::size_t to_pitch);

}  // namespace millrace::data::detail
