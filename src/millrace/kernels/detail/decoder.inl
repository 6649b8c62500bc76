// Parts of decoders: residual and RMS norm over rows, gated SiLU, rotary positions, and attention of one query of each row.
#pragma once

#include "millrace/kernels/detail/attention.inl"
#include "millrace/kernels/detail/rms_norm.inl"

namespace {

template <class R, class Y>
void rms_rows_forward_of(const RmsRows& a, std::int64_t first_row, std::int64_t last_row) {
  const std::int64_t width = a.width;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t begin = row * width;
    const auto* x = static_cast<const R*>(a.x) + begin;
    const auto* branch = a.branch == nullptr ? nullptr : static_cast<const Y*>(a.branch) + begin;
    auto* y = static_cast<Y*>(a.y) + begin;
    F squares = splat(0.0F);
    for (std::int64_t c = 0; c < width; c += 16) {
      F v = load_some(x + c, width - c);
      if (branch != nullptr) {
        v = add(v, load_some(branch + c, width - c));
        R* sum = static_cast<R*>(a.sum) + begin + c;
        store_some(sum, v, width - c);
        if constexpr (sizeof(R) == 2) v = load_some(sum, width - c);  // normalises the rounded sum, which other code reads
      }
      squares = fma(v, v, squares);
    }
    const float rate = 1.0F / __builtin_sqrtf(sum(squares) / static_cast<float>(width) + a.epsilon);
    a.rates[row] = rate;
    const auto* from = branch == nullptr ? x : static_cast<const R*>(a.sum) + begin;
    for (std::int64_t c = 0; c < width; c += 16) {
      const F v = mul(load_some(from + c, width - c), splat(rate));
      store_some(y + c, mul(v, load_some(a.weight + c, width - c)), width - c);
    }
  }
}

// With n = x * rate and u = dy * weight: dx = rate * (u - n * mean(u n)), plus the gradient of the sum.
template <class R, class Y>
void rms_rows_backward_of(const RmsRowsBackward& a, std::int64_t first_row, std::int64_t last_row, float* weight_gradient) {
  const std::int64_t width = a.width;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const std::int64_t begin = row * width;
    const auto* x = a.x == nullptr ? nullptr : static_cast<const R*>(a.x) + begin;
    const auto* y = x != nullptr ? nullptr : static_cast<const Y*>(a.y) + begin;
    const auto* dy = static_cast<const Y*>(a.y_gradient) + begin;
    const auto* dsum = a.sum_gradient == nullptr ? nullptr : static_cast<const R*>(a.sum_gradient) + begin;
    const F rate = splat(a.rates[row]);
    const auto normed = [&](std::int64_t c) {
      return x != nullptr ? mul(load_some(x + c, width - c), rate)
                          : mul(load_some(y + c, width - c), load_some(a.inverse + c, width - c));
    };
    F total = splat(0.0F);
    for (std::int64_t c = 0; c < width; c += 16) {  // lanes past the end add nothing, because dy is zero there
      const F v = load_some(dy + c, width - c);
      const F vn = mul(v, normed(c));
      if (weight_gradient != nullptr) {
        store_some(weight_gradient + c, add(vn, load_some(weight_gradient + c, width - c)), width - c);
      }
      total = fma(vn, load_some(a.weight + c, width - c), total);
    }
    const F mean = splat(sum(total) / static_cast<float>(width));
    for (std::int64_t c = 0; c < width; c += 16) {
      const F n = normed(c);
      const F u = mul(load_some(dy + c, width - c), load_some(a.weight + c, width - c));
      F v = mul(fnma(n, mean, u), rate);
      if (dsum != nullptr) v = add(v, load_some(dsum + c, width - c));
      store_some(static_cast<R*>(a.x_gradient) + begin + c, v, width - c);
      if (a.branch_gradient != nullptr) store_some(static_cast<Y*>(a.branch_gradient) + begin + c, v, width - c);
    }
  }
}

template <class T>
void swiglu_of(const Swiglu& a, std::int64_t first_row, std::int64_t last_row) {
  for (std::int64_t row = first_row; row < last_row; ++row) {
    const auto* gate = static_cast<const T*>(a.x) + 2 * row * a.width;
    const auto* up = gate + a.width;
    if (a.gradient == nullptr) {
      auto* out = static_cast<T*>(a.out) + row * a.width;
      for (std::int64_t c = 0; c < a.width; c += 16) {
        const F g = load_some(gate + c, a.width - c);
        store_some(out + c, mul(mul(g, logistic(g)), load_some(up + c, a.width - c)), a.width - c);
      }
      continue;
    }
    const auto* gradient = static_cast<const T*>(a.gradient) + row * a.width;
    auto* out = static_cast<T*>(a.out) + 2 * row * a.width;
    for (std::int64_t c = 0; c < a.width; c += 16) {
      const F g = load_some(gate + c, a.width - c);
      const F v = load_some(gradient + c, a.width - c);
      const F s = logistic(g);
      const F slope = mul(s, fma(g, sub(splat(1.0F), s), splat(1.0F)));
      store_some(out + c, mul(mul(v, load_some(up + c, a.width - c)), slope), a.width - c);
      store_some(out + a.width + c, mul(v, mul(g, s)), a.width - c);
    }
  }
}

inline std::int64_t position_of(const std::int64_t* positions, std::int64_t batch, std::int64_t row) {
  return positions == nullptr ? row : positions[batch];
}

template <class T>
void rotate_of(const Rotate& a, std::int64_t first_item, std::int64_t last_item) {
  const F direction = splat(a.back ? -1.0F : 1.0F);
  for (std::int64_t item = first_item; item < last_item; ++item) {
    const std::int64_t batch = item / a.heads;
    T* head = static_cast<T*>(a.x.data) + batch * a.x.batch_stride + item % a.heads * a.x.head_stride;
    for (std::int64_t row = 0; row < a.rows; ++row) {
      T* x = head + row * a.x.row_stride;
      const std::int64_t at = position_of(a.positions, batch, row) * a.half;
      for (std::int64_t c = 0; c < a.half; c += 16) {
        const std::int64_t n = a.half - c;
        const F cos = load_some(a.cos + at + c, n);
        const F sin = mul(load_some(a.sin + at + c, n), direction);
        const F first = load_some(x + c, n);
        const F second = load_some(x + a.half + c, n);
        store_some(x + c, fnma(second, sin, mul(first, cos)), n);
        store_some(x + a.half + c, fma(first, sin, mul(second, cos)), n);
      }
    }
  }
}

template <class T>
inline F dot(const T* a, const T* b, std::int64_t size) {
  F total = splat(0.0F);
  for (std::int64_t c = 0; c < size; c += 16) total = fma(load_some(a + c, size - c), load_some(b + c, size - c), total);
  return total;
}

// out (fp32) += factor * x.
template <class T>
inline void add_times(float* out, F factor, const T* x, std::int64_t size) {
  for (std::int64_t c = 0; c < size; c += 16) {
    store_some(out + c, fma(load_some(x + c, size - c), factor, load_some(out + c, size - c)), size - c);
  }
}
template <class T>
inline void store_times(T* out, F factor, const T* x, std::int64_t size) {
  for (std::int64_t c = 0; c < size; c += 16) store_some(out + c, mul(load_some(x + c, size - c), factor), size - c);
}

template <class T>
inline void store_rounded(T* out, const float* sums, std::int64_t size) {
  for (std::int64_t c = 0; c < size; c += 16) store_some(out + c, load_some(sums + c, size - c), size - c);
}

template <class T>
void one_query_forward_of(const OneQuery& a, std::int64_t first_item, std::int64_t last_item, float* sums) {
  for (std::int64_t item = first_item; item < last_item; ++item) {
    const std::int64_t batch = item / a.heads;
    const std::int64_t head = item % a.heads;
    const std::int64_t seen = a.positions[batch] + 1;
    const T* q = head_of<T>(a.q, batch, head);
    const T* k = head_of<T>(a.k, batch, head);
    const T* v = head_of<T>(a.v, batch, head);
    float* weights = a.weights + item * a.keys;
    float highest = -3.0e38F;
    for (std::int64_t t = 0; t < seen; ++t) {
      weights[t] = sum(dot(q, k + t * a.k.row_stride, a.head_size)) * a.scale;
      highest = weights[t] > highest ? weights[t] : highest;
    }
    F total = splat(0.0F);
    for (std::int64_t t = 0; t < seen; t += 16) {
      const F e = exponential(sub(load_some(weights + t, seen - t), splat(highest)));
      store_some(weights + t, e, seen - t);
      total = add(total, keep_lanes(lanes_below(seen - t), e));
    }
    // If all scores are -inf, there are no weights and the result is NaN.
    const F share = splat(highest > -3.0e38F ? 1.0F / sum(total) : __builtin_nanf(""));
    for (std::int64_t c = 0; c < a.head_size; ++c) sums[c] = 0.0F;
    for (std::int64_t t = 0; t < seen; t += 16) store_some(weights + t, mul(load_some(weights + t, seen - t), share), seen - t);
    for (std::int64_t t = 0; t < seen; ++t) add_times(sums, splat(weights[t]), v + t * a.v.row_stride, a.head_size);
    store_rounded(head_of<T>(a.out, batch, head), sums, a.head_size);
  }
}

// With the weights p and dp = dout v^T: ds = scale * p * (dp - sum of p dp), dq = ds k, dk = ds^T q, dv = p^T dout.
template <class T>
void one_query_backward_of(const OneQuery& a, std::int64_t first_item, std::int64_t last_item, float* sums) {
  for (std::int64_t item = first_item; item < last_item; ++item) {
    const std::int64_t batch = item / a.heads;
    const std::int64_t head = item % a.heads;
    const std::int64_t seen = a.positions[batch] + 1;
    const T* q = head_of<T>(a.q, batch, head);
    const T* k = head_of<T>(a.k, batch, head);
    const T* v = head_of<T>(a.v, batch, head);
    const T* dout = head_of<T>(a.out_gradient, batch, head);
    T* dk = head_of<T>(a.k_gradient, batch, head);
    T* dv = head_of<T>(a.v_gradient, batch, head);
    const float* weights = a.weights + item * a.keys;
    float* products = sums + round_up(a.head_size, 16);
    float mean = 0.0F;
    for (std::int64_t t = 0; t < seen; ++t) {
      products[t] = sum(dot(dout, v + t * a.v.row_stride, a.head_size));
      mean += products[t] * weights[t];
    }
    for (std::int64_t c = 0; c < a.head_size; ++c) sums[c] = 0.0F;
    for (std::int64_t t = 0; t < a.keys; ++t) {
      const bool is_seen = t < seen;
      const F score = splat(is_seen ? weights[t] * (products[t] - mean) * a.scale : 0.0F);
      if (is_seen) add_times(sums, score, k + t * a.k.row_stride, a.head_size);  // after this, dk may overwrite k
      store_times(dk + t * a.k_gradient.row_stride, score, q, a.head_size);
      store_times(dv + t * a.v_gradient.row_stride, splat(is_seen ? weights[t] : 0.0F), dout, a.head_size);
    }
    store_rounded(head_of<T>(a.q_gradient, batch, head), sums, a.head_size);
  }
}

void rms_rows_forward(const RmsRows& a, std::int64_t first_row, std::int64_t last_row) {
  with_type(a.x_type, [&](auto* r) {
    with_type(a.y_type, [&](auto* y) {
      rms_rows_forward_of<typename Pointee<decltype(r)>::type, typename Pointee<decltype(y)>::type>(a, first_row, last_row);
    });
  });
}

void rms_rows_backward(const RmsRowsBackward& a, std::int64_t first_row, std::int64_t last_row, float* weight_gradient) {
  with_type(a.x_type, [&](auto* r) {
    with_type(a.y_type, [&](auto* y) {
      rms_rows_backward_of<typename Pointee<decltype(r)>::type, typename Pointee<decltype(y)>::type>(a, first_row, last_row,
                                                                                                     weight_gradient);
    });
  });
}

void swiglu(const Swiglu& a, std::int64_t first_row, std::int64_t last_row) {
  with_type(a.type, [&](auto* x) { swiglu_of<typename Pointee<decltype(x)>::type>(a, first_row, last_row); });
}

void rotate(const Rotate& a, std::int64_t first_item, std::int64_t last_item) {
  with_type(a.type, [&](auto* x) { rotate_of<typename Pointee<decltype(x)>::type>(a, first_item, last_item); });
}

void one_query_forward(const OneQuery& a, std::int64_t first_item, std::int64_t last_item, float* scratch) {
  with_type(a.type,
            [&](auto* x) { one_query_forward_of<typename Pointee<decltype(x)>::type>(a, first_item, last_item, scratch); });
}

void one_query_backward(const OneQuery& a, std::int64_t first_item, std::int64_t last_item, float* scratch) {
  with_type(a.type,
            [&](auto* x) { one_query_backward_of<typename Pointee<decltype(x)>::type>(a, first_item, last_item, scratch); });
}

}  // namespace
