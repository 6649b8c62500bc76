#include "millrace/data/loader/detail/order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "millrace/base/philox.h"

namespace millrace::data::detail {
namespace {

std::uint64_t scramble(std::uint64_t x, std::uint64_t key) noexcept {
  x = (x + key) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 32U)) * 0xD6E8FEB86659FD93ULL;
  return x >> 32U;
}

}  // namespace

Order::Order(std::int64_t size, std::uint64_t key) noexcept : size_(size), shuffled_(size > 1) {
  // At least 8 bits, so that each half has four. With fewer bits there are too few different round functions, and the orders
  // would not be about equally likely.
  constexpr int kMinBits = 8;
  const int bits =
      std::max(kMinBits, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1) - 1))));
  right_bits_ = static_cast<unsigned>((bits + 1) / 2);
  right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
  left_mask_ = (std::uint64_t{1} << (static_cast<unsigned>(bits) - right_bits_)) - 1;
  for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = make_key(key, i);
}

std::uint64_t Order::permute(std::uint64_t x) const noexcept {
  std::uint64_t left = x >> right_bits_;
  std::uint64_t right = x & right_mask_;
  for (std::size_t i = 0; i < kRounds; i += 2) {
    left ^= scramble(right, keys_[i]) & left_mask_;
    right ^= scramble(left, keys_[i + 1]) & right_mask_;
  }
  return left << right_bits_ | right;
}

std::int64_t Order::operator[](std::int64_t position) const noexcept {
  std::int64_t index = 0;
  fill(position, {&index, 1});
  return index;
}

void Order::fill(std::int64_t first, std::span<std::int64_t> out) const noexcept {
  if (!shuffled_) {
    std::iota(out.begin(), out.end(), first);
    return;
  }
  // Values outside the range are collected without a branch and then permuted again together. A loop for each row would
  // mispredict every third branch and prevent the processor from working on several rows at once.
  constexpr std::size_t kBlock = 256;
  std::array<std::uint32_t, kBlock> outside;
  for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
    const std::span<std::int64_t> block = out.subspan(begin, std::min(kBlock, out.size() - begin));
    const std::uint64_t from = static_cast<std::uint64_t>(first) + begin;
    std::size_t count = 0;
    const auto place = [&](std::uint32_t row, std::uint64_t x) {
      block[row] = static_cast<std::int64_t>(permute(x));
      outside[count] = row;
      count += block[row] >= size_ ? 1 : 0;
    };
    for (std::uint32_t row = 0; row < block.size(); ++row) place(row, from + row);
    while (count > 0) {
      const std::size_t listed = std::exchange(count, 0);
      for (std::size_t i = 0; i < listed; ++i) place(outside[i], static_cast<std::uint64_t>(block[outside[i]]));
    }
  }
}

std::int64_t BatchSlices::batches() const noexcept {
  const std::int64_t global = batch_size * world_size;
  return drop_last ? size / global : size / global + (size % global != 0 ? 1 : 0);
}

RowRange BatchSlices::slice(std::int64_t batch, std::int64_t rank) const noexcept {
  if (batch >= batches()) return {size, 0};
  const std::int64_t global = batch_size * world_size;
  const std::int64_t first = batch * global;
  const std::int64_t rows = std::min(global, size - first);
  if (rows == global) return {first + rank * batch_size, batch_size};
  const std::int64_t each = rows / world_size;
  const std::int64_t extra = rows % world_size;
  return {first + rank * each + std::min(rank, extra), each + (rank < extra ? 1 : 0)};
}

}  // namespace millrace::data::detail
