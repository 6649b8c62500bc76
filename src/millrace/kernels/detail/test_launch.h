// For tests: runs the launches of device/cuda/*.cu on the CPU, with the same arithmetic for the same threads. Blocks run one
// after the other, and so do threads between two barriers, in an order that the test chooses. Throws if a GPU would refuse the
// launch or a memory access.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace/kernels/cross_entropy_lane.h"
#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/device_table.h"
#include "millrace/kernels/device_types.h"
#include "millrace/kernels/dropout_lane.h"
#include "millrace/kernels/gelu_lane.h"
#include "millrace/kernels/norm_lane.h"
#include "millrace/kernels/pointwise_lane.h"

namespace millrace::kernels::launched {

using Site = DeviceTable::Site;

// The order of blocks and of the threads between two barriers: ascending, or, with a seed, random.
class Order {
 public:
  Order() = default;
  explicit Order(std::uint32_t seed) : random_(seed), shuffles_(true) {}

  template <class Body>
  void each(std::int64_t count, const Body& body) {
    if (!shuffles_) {
      for (std::int64_t i = 0; i < count; ++i) body(i);
      return;
    }
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    std::shuffle(all.begin(), all.end(), random_);
    for (const std::int64_t i : all) body(i);
  }

 private:
  std::mt19937 random_;
  bool shuffles_ = false;
};

inline constexpr std::int64_t kWarp = 32;
inline constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("a launch that a GPU refuses: " + what);
}
inline void require_aligned(const void* data, std::size_t bytes, const std::string& name) {
  require(reinterpret_cast<std::uintptr_t>(data) % bytes == 0,
          name + " is not at a multiple of " + std::to_string(bytes) + " bytes");
}

inline detail::Keep keep_at(const detail::Keep& given, Site recorded) {
  return recorded == nullptr ? given : detail::Keep{recorded->key, recorded->first, given.threshold, given.scale};
}

// ---- Element by element: elementwise.cu

inline constexpr std::int64_t kThreads = 256;

// Calls body(thread, threads) for all threads of a launch without barriers.
template <class Body>
void each_thread(std::int64_t wanted, Order& order, const Body& body) {
  const std::int64_t blocks = std::min((wanted + kThreads - 1) / kThreads, kMostBlocks);
  require(blocks > 0, "no blocks");
  order.each(blocks, [&](std::int64_t block) {
    order.each(kThreads, [&](std::int64_t thread) { body(block * kThreads + thread, blocks * kThreads); });
  });
}

template <class Of>
void elementwise(Of of, std::int64_t count, Site recorded, Order& order) {
  if (count == 0) return;
  of.keep = keep_at(of.keep, recorded);
  const std::int64_t lanes = detail::lanes_of(of.keep.first, count);
  each_thread(detail::kLanesOfGroup * ((count - 1) / kDropoutGroup + 2), order, [&](std::int64_t thread, std::int64_t step) {
    for (std::int64_t lane = thread; lane < lanes; lane += step) of.lane(count, lane);
  });
}

inline void dropout(const detail::DropoutArgs& args, Site recorded, Order order = {}) {
  with_types(args.x_type, args.out_type, [&]<class X, class Out>() {
    const detail::DropoutOf<X, Out> of{.x = static_cast<const X*>(args.x),
                                       .residual = static_cast<const Out*>(args.residual),
                                       .out = static_cast<Out*>(args.out),
                                       .keep = args.keep};
    elementwise(of, args.count, recorded, order);
  });
}

inline void gelu(const detail::GeluArgs& args, Site recorded, Order order = {}) {
  with_types(args.type, args.type, [&]<class X, class>() {
    const detail::GeluOf<X> of{.x = static_cast<const X*>(args.x),
                               .gradient = static_cast<const X*>(args.gradient),
                               .out = static_cast<X*>(args.out),
                               .keep = args.keep};
    elementwise(of, args.count, recorded, order);
  });
}

template <class Function, class X>
void pointwise_of(const detail::PointwiseArgs& args, Order& order) {
  constexpr int kElements = Piece<X>::kElements;
  const auto *x = static_cast<const X*>(args.x), *gradient = static_cast<const X*>(args.gradient);
  auto* const out = static_cast<X*>(args.out);
  const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0; };
  const bool whole = begins_piece(x) && begins_piece(gradient) && begins_piece(out);
  const std::int64_t pieces = whole ? args.count / kElements : 0;
  each_thread(whole ? args.count / kElements + 1 : args.count, order, [&](std::int64_t thread, std::int64_t step) {
    for (std::int64_t i = thread; i < pieces; i += step) {
      Piece<X> piece = reinterpret_cast<const Piece<X>*>(x)[i];
      Piece<X> upstream{};
      if (gradient != nullptr) upstream = reinterpret_cast<const Piece<X>*>(gradient)[i];
      const X* const given = gradient == nullptr ? nullptr : upstream.at;
      for (int k = 0; k < kElements; ++k) piece.at[k] = detail::pointwise_of<Function>(piece.at[k], given, k);
      reinterpret_cast<Piece<X>*>(out)[i] = piece;
    }
    for (std::int64_t i = pieces * kElements + thread; i < args.count; i += step)
      out[i] = detail::pointwise_of<Function>(x[i], gradient, i);
  });
}

inline void pointwise(Pointwise function, const detail::PointwiseArgs& args, Order order = {}) {
  if (args.count == 0) return;
  with_types(args.type, args.type, [&]<class X, class>() {
    if (function == Pointwise::smooth_leaky) return pointwise_of<detail::SmoothLeaky, X>(args, order);
    pointwise_of<detail::QuickGelu, X>(args, order);
  });
}

// ---- Tensors moved toward others: lerp.cu

inline void lerp(const detail::Lerp& args, Order order = {}) {
  constexpr std::int64_t kElements = Piece<float>::kElements;
  require(args.count > 0 && args.count <= detail::Lerp::kMost, std::to_string(args.count) + " pairs");
  std::int64_t most = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(args.count); ++i) most = std::max(most, args.pairs[i].count);
  const std::int64_t blocks = std::min((most / kElements + detail::kLerpThreads) / detail::kLerpThreads, detail::kLerpBlocks);
  const std::int64_t step = blocks * detail::kLerpThreads;
  order.each(args.count * step, [&](std::int64_t thread) {
    const detail::Lerp::Pair& pair = args.pairs[static_cast<std::size_t>(thread / step)];
    const float weight = *args.weight;
    const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<float>) == 0; };
    const std::int64_t pieces = begins_piece(pair.average) && begins_piece(pair.value) ? pair.count / kElements : 0;
    auto* const averages = reinterpret_cast<Piece<float>*>(pair.average);
    for (std::int64_t i = thread % step; i < pieces; i += step) {
      const Piece<float> value = reinterpret_cast<const Piece<float>*>(pair.value)[i];
      for (int k = 0; k < kElements; ++k) averages[i].at[k] = detail::lerp_of(averages[i].at[k], value.at[k], weight);
    }
    for (std::int64_t i = pieces * kElements + thread % step; i < pair.count; i += step)
      pair.average[i] = detail::lerp_of(pair.average[i], pair.value[i], weight);
  });
}

// ---- Rows of a norm: norm.cu

inline constexpr std::int64_t kNormWarps = 4;

// One number for each lane of a warp.
using OfLanes = std::array<float, kWarp>;

template <class Lanes, class Value>
OfLanes from_lanes(const Lanes& lanes, const Value& value) {
  OfLanes all{};
  for (std::size_t lane = 0; lane < kWarp; ++lane) all[lane] = value(lanes[lane]);
  return all;
}

// Adds the values of all lanes in the steps of __shfl_xor_sync, and returns the sum that each lane then has.
inline OfLanes over_warp(OfLanes values) {
  for (std::size_t distance = 16; distance > 0; distance /= 2) {
    const OfLanes before = values;
    for (std::size_t lane = 0; lane < kWarp; ++lane) values[lane] += before[lane ^ distance];
  }
  return values;
}

inline detail::Keep keep_of_row(const detail::Keep& given, Site recorded, std::int64_t row, std::int64_t width) {
  detail::Keep keep = keep_at(given, recorded);
  require(keep.threshold == 0 || keep.first % kDropoutGroup == 0, "a norm's dropout begins within a group of random numbers");
  keep.first += row * width;
  return keep;
}

template <class T>
T* at_row(T* data, std::int64_t begin) {
  return data == nullptr ? nullptr : data + begin;
}

template <class R, class Y, int kGroups>
void norm_row(const detail::NormForward& args, std::int64_t row, const detail::Keep& keep) {
  using Lane = detail::NormRow<kGroups>;
  const std::int64_t width = args.width, begin = row * width;
  std::array<Lane, kWarp> lanes;
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    lanes[lane] = {.lane = static_cast<int>(lane), .width = width};
    detail::load_sum(lanes[lane], static_cast<const R*>(args.residual) + begin, at_row(static_cast<const Y*>(args.branch), begin),
                     at_row(static_cast<R*>(args.sum), begin), keep);
  }
  OfLanes mean = over_warp(from_lanes(lanes, [](const Lane& lane) { return lane.sum(); }));
  for (float& each : mean) each /= static_cast<float>(width);
  OfLanes rate{};
  for (std::size_t lane = 0; lane < kWarp; ++lane) rate[lane] = lanes[lane].squares(mean[lane]);
  rate = over_warp(rate);
  for (float& each : rate) each = 1.0F / std::sqrt(each / static_cast<float>(width) + args.epsilon);
  args.statistics[2 * row] = mean[0];
  args.statistics[2 * row + 1] = rate[0];
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    detail::write_normed(lanes[lane], mean[lane], rate[lane], args.weight, args.bias, static_cast<Y*>(args.y) + begin);
}

template <class R, class Y>
void require_pairs(const void* residual, const void* branch, const void* sum, const void* y, const void* more) {
  for (const void* data : {residual, sum, more}) require_aligned(data, sizeof(detail::PairOf<R>), "a norm's residual");
  for (const void* data : {branch, y}) require_aligned(data, sizeof(detail::PairOf<Y>), "a norm's branch");
}

// Calls body.operator()<R, Y, kGroups>() for the launch's types and width.
template <class Body>
void with_norm(detail::Type residual, detail::Type y, std::int64_t width, const Body& body) {
  require(norm_width_fits(width), "a norm of width " + std::to_string(width));
  with_types(residual, y, [&]<class R, class Y>() {
    if (width <= 512) return body.template operator()<R, Y, 2>();
    body.template operator()<R, Y, 4>();
  });
}

inline void norm_forward(const detail::NormForward& args, std::int64_t rows, Site recorded, Order order = {}) {
  if (rows == 0) return;
  for (const void* data : {args.weight, args.bias}) require_aligned(data, 8, "a norm's weight or bias");
  with_norm(args.residual_type, args.y_type, args.width, [&]<class R, class Y, int kGroups>() {
    require_pairs<R, Y>(args.residual, args.branch, args.sum, args.y, nullptr);
    const std::int64_t blocks = std::min((rows + kNormWarps - 1) / kNormWarps, kMostBlocks);
    order.each(blocks, [&](std::int64_t block) {
      order.each(kNormWarps, [&](std::int64_t warp) {
        for (std::int64_t row = block * kNormWarps + warp; row < rows; row += blocks * kNormWarps)
          norm_row<R, Y, kGroups>(args, row, keep_of_row(args.keep, recorded, row, args.width));
      });
    });
  });
}

// A thread's summands of the gradients of weight and bias.
template <int kGroups>
struct NormParts {
  std::array<float, 8 * kGroups> weight{}, bias{};
};

template <class R, class Y, int kGroups>
void norm_backward_row(const detail::NormBackward& args, std::int64_t row, const detail::Keep& keep, NormParts<kGroups>* parts) {
  using Lane = detail::NormGradientRow<kGroups>;
  const std::int64_t width = args.width, begin = row * width;
  const float mean = args.statistics[2 * row], rate = args.statistics[2 * row + 1];
  std::array<Lane, kWarp> lanes;
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    lanes[lane].normed = {.lane = static_cast<int>(lane), .width = width};
    detail::load_gradient(lanes[lane], static_cast<const R*>(args.sum) + begin, static_cast<const Y*>(args.y_gradient) + begin,
                          args.weight, mean, rate, parts[lane].weight.data(), parts[lane].bias.data());
  }
  const OfLanes weighted = over_warp(from_lanes(lanes, [](const Lane& lane) { return detail::sum_of_weighted(lane); }));
  const OfLanes products = over_warp(from_lanes(lanes, [](const Lane& lane) { return detail::sum_of_products(lane); }));
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    detail::write_gradient(lanes[lane], rate, weighted[lane] / static_cast<float>(width),
                           products[lane] / static_cast<float>(width), at_row(static_cast<const R*>(args.sum_gradient), begin),
                           static_cast<R*>(args.residual_gradient) + begin, at_row(static_cast<Y*>(args.branch_gradient), begin),
                           keep);
}

// The last part of a block's work: adds up the summands of the block's threads in shared memory, and writes the sums. Shared
// memory may hold any values at first.
template <int kGroups>
void norm_block_ends(std::int64_t width, std::int64_t block, std::int64_t blocks, const std::vector<NormParts<kGroups>>& parts,
                     float* partial, Order& order) {
  std::vector<float> shared(static_cast<std::size_t>(2 * width), std::numeric_limits<float>::quiet_NaN());
  const auto add_thread = [&](std::int64_t warp, std::int64_t lane) {
    const NormParts<kGroups>& mine = parts[static_cast<std::size_t>(warp * kWarp + lane)];
    const detail::NormRow<kGroups> place{.lane = static_cast<int>(lane), .width = width};
    for (int slot = 0; slot < kGroups; ++slot) {
      for (int i = 0; place.has(slot) && i < 8; ++i) {
        const auto column = static_cast<std::size_t>(place.column(slot, i / 2) + i % 2);
        const auto value = static_cast<std::size_t>(8 * slot + i);
        float &weight = shared[column], &bias = shared[static_cast<std::size_t>(width) + column];
        weight = (warp == 0 ? 0.0F : weight) + mine.weight[value];
        bias = (warp == 0 ? 0.0F : bias) + mine.bias[value];
      }
    }
  };
  for (std::int64_t warp = 0; warp < kNormWarps; ++warp)  // a barrier follows each warp
    order.each(kWarp, [&](std::int64_t lane) { add_thread(warp, lane); });
  order.each(kNormWarps * kWarp, [&](std::int64_t thread) {
    for (std::int64_t column = thread; column < width; column += kNormWarps * kWarp) {
      partial[block * width + column] = shared[static_cast<std::size_t>(column)];
      partial[(blocks + block) * width + column] = shared[static_cast<std::size_t>(width + column)];
    }
  });
}

inline void norm_backward(const detail::NormBackward& args, std::int64_t rows, std::int64_t blocks, Site recorded, float* partial,
                          Order order = {}) {
  require(blocks > 0, "no blocks");
  require(args.y_gradient != nullptr, "a norm without a gradient of y");
  require_aligned(args.weight, 8, "a norm's weight");
  with_norm(args.residual_type, args.y_type, args.width, [&]<class R, class Y, int kGroups>() {
    require_pairs<R, Y>(args.sum, args.branch_gradient, args.sum_gradient, args.y_gradient, args.residual_gradient);
    order.each(blocks, [&](std::int64_t block) {
      std::vector<NormParts<kGroups>> parts(kNormWarps * kWarp);
      order.each(kNormWarps, [&](std::int64_t warp) {
        for (std::int64_t row = block * kNormWarps + warp; row < rows; row += blocks * kNormWarps)
          norm_backward_row<R, Y, kGroups>(args, row, keep_of_row(args.keep, recorded, row, args.width),
                                           parts.data() + warp * kWarp);
      });
      norm_block_ends<kGroups>(args.width, block, blocks, parts, partial, order);
    });
  });
}

// ---- Rows of logits: cross_entropy.cu

inline constexpr std::int64_t kShortRow = 1024;

inline std::int64_t threads_of_row(const detail::CrossEntropy& args) { return args.classes <= kShortRow ? kWarp : kThreads; }

template <class X>
bool has_whole_pieces(const detail::CrossEntropy& args) {
  return args.classes % Piece<X>::kElements == 0 && reinterpret_cast<std::uintptr_t>(args.logits) % kPieceBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(args.gradient) % kPieceBytes == 0;
}

// Calls body(row, number of threads for a row) for all rows of a launch.
template <class Body>
void each_row(const detail::CrossEntropy& args, std::int64_t rows, Order& order, const Body& body) {
  const std::int64_t of_row = threads_of_row(args), in_block = kThreads / of_row, blocks = (rows + in_block - 1) / in_block;
  require(blocks > 0, "no blocks");
  order.each(blocks, [&](std::int64_t block) {
    order.each(in_block, [&](std::int64_t place) {
      const std::int64_t row = block * in_block + place;
      if (row < rows) body(row, of_row);
    });
  });
}

// Joins the sums of a warp's lanes as its shuffles do.
inline detail::ExpSum over_lanes(std::array<detail::ExpSum, kWarp> sums) {
  for (std::size_t distance = 16; distance > 0; distance /= 2) {
    const std::array<detail::ExpSum, kWarp> before = sums;
    for (std::size_t lane = 0; lane < kWarp; ++lane) sums[lane].join(before[lane ^ distance]);
  }
  return sums[0];
}

template <class X>
detail::ExpSum sum_of_thread(const X* logits, std::int64_t classes, bool whole_pieces, std::int64_t thread,
                             std::int64_t threads) {
  detail::ExpSum mine;
  const std::int64_t together = whole_pieces ? Piece<X>::kElements : 1;
  for (std::int64_t i = thread; i < classes / together; i += threads)
    for (std::int64_t k = 0; k < together; ++k) mine.add(static_cast<float>(logits[i * together + k]));
  return mine;
}

inline void cross_entropy_forward(const detail::CrossEntropy& args, std::int64_t rows, float* losses, Order order = {}) {
  with_types(args.type, args.type, [&]<class X, class>() {
    each_row(args, rows, order, [&](std::int64_t row, std::int64_t threads) {
      const X* const logits = static_cast<const X*>(args.logits) + row * args.classes;
      detail::ExpSum all;
      for (std::int64_t warp = 0; warp < threads / kWarp; ++warp) {
        std::array<detail::ExpSum, kWarp> lanes;
        for (std::int64_t lane = 0; lane < kWarp; ++lane)
          lanes[static_cast<std::size_t>(lane)] =
              sum_of_thread(logits, args.classes, has_whole_pieces<X>(args), warp * kWarp + lane, threads);
        const detail::ExpSum of_warp = over_lanes(lanes);
        if (warp == 0) {
          all = of_warp;
        } else {
          all.join(of_warp);
        }
      }
      args.log_sums[row] = all.logarithm();
      losses[row] = detail::loss_of_row(args, logits, row, args.log_sums[row]);
    });
  });
}

inline void cross_entropy_backward(const detail::CrossEntropy& args, std::int64_t rows, Order order = {}) {
  with_types(args.type, args.type, [&]<class X, class>() {
    each_row(args, rows, order, [&](std::int64_t row, std::int64_t threads) {
      const std::int64_t begin = row * args.classes, together = has_whole_pieces<X>(args) ? Piece<X>::kElements : 1;
      const X* const logits = static_cast<const X*>(args.logits) + begin;
      X* const gradient = static_cast<X*>(args.gradient) + begin;
      const detail::LogitGradient of(args, row);
      order.each(threads, [&](std::int64_t thread) {
        for (std::int64_t i = thread; i < args.classes / together; i += threads)
          for (std::int64_t column = i * together; column < (i + 1) * together; ++column)
            gradient[column] = static_cast<X>(of(static_cast<float>(logits[column]), column));
      });
    });
  });
}

// ---- Sums of columns: column_sums.cu

inline constexpr std::int64_t kSumWarps = 8;

template <class X>
void column_sums_of_block(const X* matrix, std::int64_t rows, std::int64_t columns, std::int64_t x, std::int64_t y,
                          std::int64_t blocks, float* parts, Order& order) {
  constexpr std::int64_t kElements = Piece<X>::kElements;
  std::vector<float> shared(kSumWarps * kWarp * kElements, std::numeric_limits<float>::quiet_NaN());
  const auto at = [&](std::int64_t warp, std::int64_t i) -> float& {
    return shared[static_cast<std::size_t>(warp * kWarp * kElements + i)];
  };
  order.each(kSumWarps * kWarp, [&](std::int64_t thread) {
    const std::int64_t lane = thread % kWarp, warp = thread / kWarp, piece = x * kWarp + lane;
    std::array<float, kElements> sums{};
    if (piece * kElements < columns) {
      const std::int64_t begin = rows * y / blocks, end = rows * (y + 1) / blocks;
      for (std::int64_t row = begin + warp; row < end; row += kSumWarps) {
        const Piece<X> here = reinterpret_cast<const Piece<X>*>(matrix + row * columns)[piece];
        for (std::size_t i = 0; i < kElements; ++i) sums[i] += static_cast<float>(here.at[i]);
      }
    }
    for (std::int64_t i = 0; i < kElements; ++i) at(warp, i * kWarp + lane) = sums[static_cast<std::size_t>(i)];
  });
  order.each(kSumWarps * kWarp, [&](std::int64_t thread) {  // a barrier comes before this loop
    for (std::int64_t i = thread; i < kWarp * kElements; i += kWarp * kSumWarps) {
      float total = 0;
      for (std::int64_t warp = 0; warp < kSumWarps; ++warp) total += at(warp, i);
      const std::int64_t column = (x * kWarp + i % kWarp) * kElements + i / kWarp;
      if (column < columns) parts[y * columns + column] = total;
    }
  });
}

inline void column_sums(const void* matrix, detail::Type type, std::int64_t rows, std::int64_t columns, std::int64_t blocks,
                        float* parts, Order order = {}) {
  require(blocks > 0 && columns > 0, "no blocks");
  require_aligned(matrix, kPieceBytes, "a matrix");
  with_types(type, type, [&]<class X, class>() {
    require(columns % Piece<X>::kElements == 0, std::to_string(columns) + " columns are no whole pieces");
    const std::int64_t of_warp = kWarp * Piece<X>::kElements, across = (columns + of_warp - 1) / of_warp;
    order.each(across * blocks, [&](std::int64_t block) {
      column_sums_of_block(static_cast<const X*>(matrix), rows, columns, block % across, block / across, blocks, parts, order);
    });
  });
}

}  // namespace millrace::kernels::launched
