// Kernels that work row by row: layer norm with the residual sum before it, and cross-entropy.
#pragma once

#include "millrace/kernels/detail/elementwise.inl"

namespace {

// `scratch`: one row of floats (width rounded up to 16), then the row's keep bits.
template <class R, class Y>
void norm_forward_of(const NormForward& a, std::int64_t first_row, std::int64_t last_row, float* scratch) {
  const std::int64_t width = a.width;
  auto* bits = reinterpret_cast<std::uint8_t*>(scratch + (width + 15) / 16 * 16);
  const F scale = splat(a.keep.scale);
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t begin = row * width;
    const auto* residual = static_cast<const R*>(a.residual) + begin;
    const auto* branch = a.branch == nullptr ? nullptr : static_cast<const Y*>(a.branch) + begin;
    auto* y = static_cast<Y*>(a.y) + begin;
    RowBits keep{nullptr, 0};
    if (branch != nullptr) keep = row_bits(a.keep, begin, width, bits);
    F total = splat(0.0F);
    for (std::int64_t c = 0; c < width; c += 16) {
      F v = load_some(residual + c, width - c);
      if (branch != nullptr) {
        v = add(v, keep_lanes(keep.lanes(c), mul(load_some(branch + c, width - c), scale)));
        store_some(static_cast<R*>(a.sum) + begin + c, v, width - c);
      }
      v = keep_lanes(lanes_below(width - c), v);
      store(scratch + c, v);
      total = add(total, v);
    }
    const float mean = sum(total) / static_cast<float>(width);
    F squares = splat(0.0F);
    for (std::int64_t c = 0; c < width; c += 16) {
      const F v = keep_lanes(lanes_below(width - c), sub(load(scratch + c), splat(mean)));
      squares = fma(v, v, squares);
    }
    const float rate = 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + a.epsilon);
    a.statistics[2 * row] = mean;
    a.statistics[2 * row + 1] = rate;
    for (std::int64_t c = 0; c < width; c += 16) {
      const F v = mul(sub(load(scratch + c), splat(mean)), splat(rate));
      store_some(y + c, fma(v, load_some(a.weight + c, width - c), load_some(a.bias + c, width - c)), width - c);
    }
  }
}

template <class R, class Y>
void norm_backward_of(const NormBackward& a, std::int64_t first_row, std::int64_t last_row, float* scratch,
                      float* weight_gradient, float* bias_gradient) {
  const std::int64_t width = a.width;
  auto* bits = reinterpret_cast<std::uint8_t*>(scratch + (width + 15) / 16 * 16);
  const F scale = splat(a.keep.scale);
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t begin = row * width;
    const auto* x = static_cast<const R*>(a.sum) + begin;
    const auto* dy = a.y_gradient == nullptr ? nullptr : static_cast<const Y*>(a.y_gradient) + begin;
    const auto* dsum = a.sum_gradient == nullptr ? nullptr : static_cast<const R*>(a.sum_gradient) + begin;
    const F mean = splat(a.statistics[2 * row]);
    const F rate = splat(a.statistics[2 * row + 1]);
    F sum_u = splat(0.0F);
    F sum_uh = splat(0.0F);
    for (std::int64_t c = 0; dy != nullptr && c < width; c += 16) {  // lanes past the end add nothing, because dy is zero there
      const std::int64_t n = width - c;
      const F h = mul(sub(load_some(x + c, n), mean), rate);
      const F v = load_some(dy + c, n);
      const F u = mul(v, load_some(a.weight + c, n));
      store_some(weight_gradient + c, fma(v, h, load_some(weight_gradient + c, n)), n);
      store_some(bias_gradient + c, add(v, load_some(bias_gradient + c, n)), n);
      sum_u = add(sum_u, u);
      sum_uh = fma(u, h, sum_uh);
    }
    const F mean_u = splat(sum(sum_u) / static_cast<float>(width));
    const F mean_uh = splat(sum(sum_uh) / static_cast<float>(width));
    RowBits keep{nullptr, 0};
    if (a.branch_gradient != nullptr) keep = row_bits(a.keep, begin, width, bits);
    for (std::int64_t c = 0; c < width; c += 16) {
      const std::int64_t n = width - c;
      F v = splat(0.0F);
      if (dy != nullptr) {
        const F h = mul(sub(load_some(x + c, n), mean), rate);
        const F u = mul(load_some(dy + c, n), load_some(a.weight + c, n));
        v = mul(sub(sub(u, mean_u), mul(h, mean_uh)), rate);
      }
      if (dsum != nullptr) v = add(v, load_some(dsum + c, n));
      store_some(static_cast<R*>(a.residual_gradient) + begin + c, v, n);
      if (a.branch_gradient != nullptr) {
        store_some(static_cast<Y*>(a.branch_gradient) + begin + c, keep_lanes(keep.lanes(c), mul(v, scale)), n);
      }
    }
  }
}

void norm_forward(const NormForward& a, std::int64_t first_row, std::int64_t last_row, float* scratch) {
  with_type(a.residual_type, [&](auto* r) {
    with_type(a.y_type, [&](auto* y) {
      norm_forward_of<typename Pointee<decltype(r)>::type, typename Pointee<decltype(y)>::type>(a, first_row, last_row, scratch);
    });
  });
}

void norm_backward(const NormBackward& a, std::int64_t first_row, std::int64_t last_row, float* scratch, float* weight_gradient,
                   float* bias_gradient) {
  with_type(a.residual_type, [&](auto* r) {
    with_type(a.y_type, [&](auto* y) {
      norm_backward_of<typename Pointee<decltype(r)>::type, typename Pointee<decltype(y)>::type>(a, first_row, last_row, scratch,
                                                                                                 weight_gradient, bias_gradient);
    });
  });
}

template <class X>
CrossEntropySum cross_entropy_forward_of(const CrossEntropy& a, std::int64_t first_row, std::int64_t last_row) {
  CrossEntropySum out;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t target = a.targets[row];
    if (target == a.ignore_index) continue;
    if (target < 0 || target >= a.classes) {
      out.bad_row = row;
      return out;
    }
    const auto* z = static_cast<const X*>(a.logits) + row * a.classes;
    F top = splat(-3.0e38F);
    for (std::int64_t c = 0; c < a.classes; c += 16) {
      top = max(top, select(lanes_below(a.classes - c), load_some(z + c, a.classes - c), splat(-3.0e38F)));
    }
    const float highest = largest(top);
    F total = splat(0.0F);
    for (std::int64_t c = 0; c < a.classes; c += 16) {
      const F e = exponential(sub(load_some(z + c, a.classes - c), splat(highest)));
      total = add(total, keep_lanes(lanes_below(a.classes - c), e));
    }
    const float log_sum = highest + __builtin_logf(sum(total));
    a.log_sums[row] = log_sum;
    float chosen[16];
    store(chosen, load_first(z + target, 1));
    out.loss += static_cast<double>(log_sum - chosen[0]);
    ++out.count;
  }
  return out;
}

template <class X>
void cross_entropy_backward_of(const CrossEntropy& a, std::int64_t first_row, std::int64_t last_row) {
  const float upstream = *a.upstream;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t target = a.targets[row];
    auto* gradient = static_cast<X*>(a.gradient) + row * a.classes;
    const auto* z = static_cast<const X*>(a.logits) + row * a.classes;
    const bool counts = target != a.ignore_index;
    const F log_sum = splat(counts ? a.log_sums[row] : 0.0F);
    for (std::int64_t c = 0; c < a.classes; c += 16) {
      const std::int64_t n = a.classes - c;
      F p = splat(0.0F);
      if (counts) {
        p = exponential(sub(load_some(z + c, n), log_sum));
        if (target >= c && target < c + 16) p = select(static_cast<Mask>(1U << (target - c)), sub(p, splat(1.0F)), p);
        p = mul(p, splat(upstream));
      }
      store_some(gradient + c, p, n);
    }
  }
}

CrossEntropySum cross_entropy_forward(const CrossEntropy& a, std::int64_t first_row, std::int64_t last_row) {
  return a.type == Type::f32 ? cross_entropy_forward_of<float>(a, first_row, last_row)
                             : cross_entropy_forward_of<std::uint16_t>(a, first_row, last_row);
}

void cross_entropy_backward(const CrossEntropy& a, std::int64_t first_row, std::int64_t last_row) {
  with_type(a.type, [&](auto* x) { cross_entropy_backward_of<typename Pointee<decltype(x)>::type>(a, first_row, last_row); });
}

}  // namespace
