#include "millrace/device/detail/turned_rows.h"

#include <algorithm>
#include <array>

namespace millrace::device::detail {
namespace {

constexpr std::int64_t kBlock = 16;         // channels in a buffer
constexpr std::int64_t kElementBytes = 64;  // bytes at one position: a block in bf16, once as it is and once transposed
constexpr std::int64_t kTile = 32;          // columns of a tile
// The sizes of a level 2 cache to assume for a CPU that does not report its cache's size: the size that oneDNN then assumes, and
// the actual size of every CPU with AMX.
constexpr std::array<std::int64_t, 2> kWhereUnknown = {std::int64_t{512} << 10U, std::int64_t{2} << 20U};

std::int64_t up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return up(a, b) * b; }

// Returns the number of columns of a transposed row: `columns`, rounded up to an even number, or slightly more if the row then
// needs fewer pieces to multiply. Each piece is an even number of columns, at most a tile.
std::int64_t turned_columns(std::int64_t columns) {
  const std::int64_t least = rounded_up(columns, 2);
  const auto pieces = [](std::int64_t width) {
    std::int64_t piece = kTile;
    while (width % piece != 0) piece -= 2;
    return width / piece;
  };
  std::int64_t best = least;
  for (std::int64_t width = least; least > kTile && width <= rounded_up(least, kTile); width += 2) {
    if (pieces(width) < pieces(best)) best = width;
  }
  return best;
}

struct Axis {
  std::int64_t in = 0, out = 0, kernel = 0, step = 1, padding = 0, extent = 0;
};

// Returns one axis of the convolution. For a transposed convolution: an axis of the convolution that it transposes.
Axis axis_of(const ConvolutionCall& call, std::size_t i) {
  const auto at = [i](at::IntArrayRef values) { return values.size() == 1 ? values[0] : values[i]; };
  Axis axis{call.input[i + 2], output_size(call, i), call.weight[i + 2], at(call.stride), at(call.padding), 0};
  axis.extent = (axis.kernel - 1) * at(call.dilation) + 1;
  if (call.transposed) axis = {axis.out + at(call.output_padding), axis.in, axis.kernel, axis.step, axis.padding, axis.extent};
  return axis;
}

// Divides `size` into pieces as even as possible, each at most `room`, and returns the largest piece.
std::int64_t even_part(std::int64_t size, double room) {
  const auto most = static_cast<std::int64_t>(std::max(1.0, room));
  return most >= size ? size : up(size, up(size, most));
}

bool rows_may_overrun(const Axis& depth, const Axis& height, const Axis& width, std::int64_t in_blocks, std::int64_t out_blocks,
                      double cache) {
  // If threads divide the channels, the rows of each thread are shorter. The longest rows decide how many rows a block has, and
  // the shortest how many planes are transposed at a time.
  const std::int64_t in_row =
      kElementBytes * width.step * rounded_up(up((width.out - 1) * width.step + width.extent, width.step), kTile);
  const std::int64_t out_row = kElementBytes * turned_columns(width.out);
  const std::int64_t longest_in = in_row * in_blocks, longest_out = out_row * out_blocks;
  const auto share = [cache](std::int64_t kernel, std::int64_t in, std::int64_t both) {
    return (cache - static_cast<double>(kernel * in)) / static_cast<double>(both);
  };
  const std::int64_t rows = even_part(height.out, share(height.kernel, longest_in, longest_in + longest_out));
  if (rows == height.out) return false;
  const std::int64_t least_in_blocks = up(in_blocks, std::max<std::int64_t>(1, in_blocks / 2));
  const std::int64_t least_out_blocks = up(out_blocks, up(out_blocks, 2));
  const std::int64_t shortest_in = in_row * least_in_blocks * depth.in;
  const std::int64_t shortest_out = out_row * least_out_blocks * depth.out;
  const std::int64_t planes = even_part(depth.out, share(depth.kernel, shortest_in, shortest_in + shortest_out));
  const std::int64_t in_rows =
      std::min(height.in, height.step * std::min(height.in, (rows - 1) * std::min(height.kernel, height.step) + height.extent));
  const std::int64_t in_planes = std::min(depth.in, (planes - 1) * depth.step + depth.extent);
  const std::int64_t in_end = std::min(height.in, (height.out - 1) * height.step + height.extent - height.padding);
  return height.out > (depth.out - planes + 1) * rows || in_end > (depth.in - in_planes + 1) * in_rows;
}

}  // namespace

bool rows_may_overrun(const ConvolutionCall& call) {
  const std::array<Axis, 3> axes = {axis_of(call, 0), axis_of(call, 1), axis_of(call, 2)};
  // ATen refuses such a call, or the call has no elements.
  if (std::ranges::any_of(axes, [](const Axis& axis) { return axis.in < 1 || axis.out < 1; })) return false;
  const std::int64_t inputs = call.weight[1], outputs = call.weight[0] / std::max<std::int64_t>(1, call.groups);
  const auto with = [&](std::int64_t level2_bytes) {
    constexpr double kOfCache = 0.6;
    return rows_may_overrun(axes[0], axes[1], axes[2], up(inputs, kBlock), up(outputs, kBlock),
                            kOfCache * static_cast<double>(level2_bytes));
  };
  return call.level2_bytes > 0 ? with(call.level2_bytes) : std::ranges::any_of(kWhereUnknown, with);
}

}  // namespace millrace::device::detail
