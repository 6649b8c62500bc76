// The loops of resize_bicubic(): weighted sums of rows and of columns of bytes. A pitch is the distance between rows, in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::data::detail {

inline constexpr int kWeightBits = 22;  // fraction bits of a weight: 32 minus 8 for a pixel minus 2 for sums above 255
// The pitch of the rows that resize_columns() reads must be a multiple of this. Bytes after the end of a row may hold anything.
inline constexpr std::size_t kColumnBlock = 32;

// The old pixels, along an axis, from which a new pixel is computed.
struct Taps {
  std::int64_t first = 0, count = 0;
};
struct ResizeAxis {
  std::vector<Taps> taps;             // the taps of each new pixel
  std::vector<std::int32_t> weights;  // the weights of each new pixel's taps; `most` elements for each new pixel
  std::size_t most = 0;
};

// The number of rows that are processed together.
inline constexpr std::size_t kResizedRows = 8;
// Arguments of the loops, which are compiled once for each instruction set.
struct RowWork {
  const std::byte* from[kResizedRows] = {};
  std::byte* to[kResizedRows] = {};
  std::size_t old_bytes = 0, channels = 0, new_pixels = 0;
  const Taps* taps = nullptr;
  const std::int32_t* weights = nullptr;
  std::size_t most = 0;
  std::byte *old_columns = nullptr, *new_columns = nullptr;  // buffers with room for whole blocks of 16 columns
};
struct ColumnWork {
  const std::byte* from = nullptr;  // the first old row that contributes to the new row
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

// Computes rows of new pixels from rows of old pixels. `old_bytes`: length of an old row. `channels` is 1 or 3.
void resize_rows(const std::byte* from, std::size_t from_pitch, std::size_t old_bytes, std::int64_t rows, std::size_t channels,
                 const ResizeAxis& axis, std::byte* to, std::size_t to_pitch);

// Computes new rows, each `bytes` long, from old rows. `first` is the number of the old row that `from` points to.
void resize_columns(const std::byte* from, std::size_t from_pitch, std::int64_t first, std::size_t bytes, const ResizeAxis& axis,
                    std::byte* to, std::size_t to_pitch);

}  // namespace millrace::data::detail
