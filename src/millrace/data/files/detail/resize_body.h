// The vector code of the loops in resize_loops.h. Each source file that is compiled for an instruction set includes this file,
// with its own namespace in MR_RESIZE. So the same code uses the best instructions of each CPU. The code calls no function of
// the standard library, because the linker keeps only one copy of such a function, and that copy might need instructions that
// the CPU lacks.
#pragma once

#include <cstring>

#include "millrace/data/files/detail/resize_loops.h"

namespace millrace::data::detail::MR_RESIZE {
namespace {

// Vectors of eight values. The compiler maps them to the instructions that this file may use.
constexpr std::size_t kLanes = kResizedRows;
using Bytes = std::uint8_t __attribute__((vector_size(kLanes)));
using Shorts = std::int16_t __attribute__((vector_size(kLanes * sizeof(std::int16_t))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

inline void start(Ints& sums) { sums = Ints{} + kHalf; }

inline void add(Ints& sums, const std::byte* values, std::int32_t weight) {
  Bytes bytes;
  std::memcpy(&bytes, values, sizeof bytes);
  // Converts in two steps, because g++ 12 vectorises conversions only one step at a time.
  sums += __builtin_convertvector(__builtin_convertvector(bytes, Shorts), Ints) * weight;
}

inline void store(const Ints& sums, std::byte* to) {
  const Ints shifted = sums >> kWeightBits, least = Ints{}, most = Ints{} + 255;
  const Ints above = shifted > least ? shifted : least;
  const Ints clamped = above < most ? above : most;
  const Bytes bytes = __builtin_convertvector(__builtin_convertvector(clamped, Shorts), Bytes);
  std::memcpy(to, &bytes, sizeof bytes);
}

// Transposes eight rows of sixteen bytes. In the array of these 128 bytes, each step rotates the bits of a byte's index left by
// one. So three steps turn rows into columns, and four more steps turn columns into rows.
using Sixteen = std::uint8_t __attribute__((vector_size(16)));
using Block = Sixteen[kLanes];
constexpr std::size_t kBlockBytes = sizeof(Sixteen);

inline void turn(Block& block, int times) {
  for (int time = 0; time < times; ++time) {
    Block next;
    for (std::size_t i = 0; i < kLanes / 2; ++i) {
      const Sixteen &a = block[i], &b = block[i + kLanes / 2];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    std::memcpy(block, next, sizeof block);
  }
}

// Turns eight rows into columns of eight bytes; rows_of() turns columns back into rows. `columns` must have room for whole
// blocks of 16 columns.
inline void columns_of(const std::byte* const (&rows)[kLanes], std::size_t count, std::byte* columns) {
  for (std::size_t i = 0; i < count; i += kBlockBytes, columns += sizeof(Block)) {
    Block block = {};
    if (count - i >= kBlockBytes) {
      for (std::size_t row = 0; row < kLanes; ++row) std::memcpy(&block[row], rows[row] + i, kBlockBytes);
    } else {
      for (std::size_t row = 0; row < kLanes; ++row) std::memcpy(&block[row], rows[row] + i, count - i);
    }
    turn(block, 3);
    std::memcpy(columns, block, sizeof block);
  }
}

inline void rows_of(const std::byte* columns, std::size_t count, std::byte* const (&rows)[kLanes]) {
  for (std::size_t i = 0; i < count; i += kBlockBytes, columns += sizeof(Block)) {
    Block block;
    std::memcpy(block, columns, sizeof block);
    turn(block, 4);
    if (count - i >= kBlockBytes) {
      for (std::size_t row = 0; row < kLanes; ++row) std::memcpy(rows[row] + i, &block[row], kBlockBytes);
    } else {
      for (std::size_t row = 0; row < kLanes; ++row) std::memcpy(rows[row] + i, &block[row], count - i);
    }
  }
}

template <std::size_t kChannels>
inline void sum_columns(const RowWork& work, const std::byte* from, std::byte* to) {
  for (std::size_t i = 0; i < work.new_pixels; ++i, to += kChannels * kLanes) {
    Ints sums[kChannels];
    for (Ints& sum : sums) start(sum);
    const std::int32_t* weights = work.weights + i * work.most;
    const std::byte* pixel = from + static_cast<std::size_t>(work.taps[i].first) * kChannels * kLanes;
    for (std::int64_t k = 0; k < work.taps[i].count; ++k, pixel += kChannels * kLanes) {
      for (std::size_t c = 0; c < kChannels; ++c) add(sums[c], pixel + c * kLanes, weights[k]);
    }
    for (std::size_t c = 0; c < kChannels; ++c) store(sums[c], to + c * kLanes);
  }
}

inline void eight_rows(const RowWork& work) {
  columns_of(work.from, work.old_bytes, work.old_columns);
  if (work.channels == 1) {
    sum_columns<1>(work, work.old_columns, work.new_columns);
  } else {
    sum_columns<3>(work, work.old_columns, work.new_columns);
  }
  rows_of(work.new_columns, work.new_pixels * work.channels, work.to);
}

inline void new_row(const ColumnWork& work) {
  constexpr std::size_t kVectors = kColumnBlock / kLanes;
  for (std::size_t begin = 0; begin < work.bytes; begin += kColumnBlock) {
    Ints sums[kVectors];
    for (Ints& sum : sums) start(sum);
    const std::byte* old = work.from + begin;
    for (std::int64_t k = 0; k < work.count; ++k, old += work.pitch) {
      for (std::size_t v = 0; v < kVectors; ++v) add(sums[v], old + v * kLanes, work.weights[k]);
    }
    std::byte block[kColumnBlock];
    for (std::size_t v = 0; v < kVectors; ++v) store(sums[v], block + v * kLanes);
    if (work.bytes - begin >= kColumnBlock) {
      std::memcpy(work.to + begin, block, kColumnBlock);
    } else {
      std::memcpy(work.to + begin, block, work.bytes - begin);
    }
  }
}

}  // namespace

ResizeLoops loops() { return {eight_rows, new_row}; }

}  // namespace millrace::data::detail::MR_RESIZE
