#include "millrace/data/files/detail/resize_loops.h"

#include <algorithm>

#include "millrace/system/instructions.h"

namespace millrace::data::detail {
namespace {

ResizeLoops loops() { return instructions() >= InstructionSet::avx2 ? avx2::loops() : portable::loops(); }

}  // namespace

void resize_rows(const std::byte* from, std::size_t from_pitch, std::size_t old_bytes, std::int64_t rows, std::size_t channels,
                 const ResizeAxis& axis, std::byte* to, std::size_t to_pitch) {
  thread_local std::vector<std::byte> old_columns, new_columns;
  const auto room = [](std::size_t columns) { return (columns + 15) / 16 * 16 * kResizedRows; };
  old_columns.resize(room(old_bytes));
  new_columns.resize(room(axis.taps.size() * channels));
  RowWork work;
  work.old_bytes = old_bytes;
  work.channels = channels;
  work.new_pixels = axis.taps.size();
  work.taps = axis.taps.data();
  work.weights = axis.weights.data();
  work.most = axis.most;
  work.old_columns = old_columns.data();
  work.new_columns = new_columns.data();
  const auto run = loops().eight_rows;
  constexpr auto kRows = static_cast<std::int64_t>(kResizedRows);
  for (std::int64_t row = 0; row < rows; row += kRows) {
    for (std::int64_t lane = 0; lane < kRows; ++lane) {  // if fewer than eight rows remain, the last row is repeated
      const auto at = static_cast<std::size_t>(std::min(row + lane, rows - 1));
      work.from[lane] = from + at * from_pitch;
      work.to[lane] = to + at * to_pitch;
    }
    run(work);
  }
}

void resize_columns(const std::byte* from, std::size_t from_pitch, std::int64_t first, std::size_t bytes, const ResizeAxis& axis,
                    std::byte* to, std::size_t to_pitch) {
  const auto run = loops().new_row;
  for (std::size_t y = 0; y < axis.taps.size(); ++y) {
    run({.from = from + static_cast<std::size_t>(axis.taps[y].first - first) * from_pitch,
         .pitch = from_pitch,
         .bytes = bytes,
         .weights = axis.weights.data() + y * axis.most,
         .count = axis.taps[y].count,
         .to = to + y * to_pitch});
  }
}

}  // namespace millrace::data::detail
