// The arithmetic of a decoder's layers for a device's threads: RMS norm of rows, SwiGLU, rotary positions. g++ and nvcc both
// compile this file.
#pragma once

#include <c10/macros/Macros.h>

#include <cmath>
#include <cstdint>

#include "millrace/kernels/detail/table.h"
#include "millrace/kernels/rms_norm_lane.h"

namespace millrace::kernels {

// RMS norm of rows of `width` elements: y = sum * rate * weight, where sum = x + branch, or x without a branch. Backward, if
// y_gradient is set: writes the gradient of x, which is also the branch's.
struct DeviceRms {
  const void* x;       // in the backward pass, x is the sum
  const void* branch;  // has y's type; may be null
  void* sum;           // has x's type; null if there is no branch
  void* y;
  const void* y_gradient;    // null in the forward pass
  const void* sum_gradient;  // may be null
  void* x_gradient;
  void* branch_gradient;  // may be null
  const float* weight;
  float* rates;  // (rows), written in the forward pass, read in the backward pass
  detail::Type x_type, y_type;
  std::int64_t rows, width;
  float epsilon;
};

// out = silu(a) * b for rows (a, b), where a and b are each `width` wide. In the backward pass, out holds the gradients of a and
// b side by side.
struct DeviceSwiglu {
  const void* x;
  const void* gradient;  // null in the forward pass
  void* out;
  detail::Type type;
  std::int64_t rows, width;
};

// Rotates heads (batch, rows, heads, 2 half) by the angles of their rows, or in the opposite direction. `out` may be x.
struct DeviceTurn {
  const void* x;
  void* out;
  const float *cos, *sin;  // (rows, half)
  detail::Type type;
  std::int64_t batch, rows, heads, half;
  // Strides in elements; the heads of a row lie side by side.
  std::int64_t batch_stride, row_stride, out_batch_stride, out_row_stride;
  bool back;
};

namespace detail {

// Four neighbouring elements, which a thread reads or writes at once.
template <class T>
struct alignas(4 * sizeof(T)) FourOf {
  T at[4];
};
template <class T>
[[nodiscard]] C10_HOST_DEVICE inline FourOf<T> four_at(const T* data, std::int64_t i) {
  return reinterpret_cast<const FourOf<T>*>(data)[i];
}
template <class T>
C10_HOST_DEVICE inline void put_four(T* data, std::int64_t i, const float* values) {
  FourOf<T> four;
  for (int k = 0; k < 4; ++k) four.at[k] = static_cast<T>(values[k]);
  reinterpret_cast<FourOf<T>*>(data)[i] = four;
}

// The elements of a DeviceRms row that one of a warp's 32 lanes handles.
template <class X, class Y>
class RmsLane {
 public:
  C10_HOST_DEVICE RmsLane(const DeviceRms& args, std::int64_t row, int lane) : a_(args), begin_(row * args.width), lane_(lane) {}

  // Returns the lane's share of the row's sum of squares. If there is a branch, also writes x + branch.
  [[nodiscard]] C10_HOST_DEVICE float squares() const {
    float total = 0;
    for (std::int64_t i = lane_; i < a_.width / 4; i += 32) {
      const FourOf<X> x = four_at(static_cast<const X*>(a_.x) + begin_, i);
      float sum[4];
      for (int k = 0; k < 4; ++k) sum[k] = static_cast<float>(x.at[k]);
      if (a_.branch != nullptr) {
        const FourOf<Y> added = four_at(static_cast<const Y*>(a_.branch) + begin_, i);
        for (int k = 0; k < 4; ++k) sum[k] = static_cast<float>(static_cast<X>(sum[k] + static_cast<float>(added.at[k])));
        put_four(static_cast<X*>(a_.sum) + begin_, i, sum);
      }
      for (const float value : sum) total += value * value;
    }
    return total;
  }

  C10_HOST_DEVICE void write(float rate) const {
    const X* const from = a_.branch == nullptr ? static_cast<const X*>(a_.x) : static_cast<const X*>(a_.sum);
    for (std::int64_t i = lane_; i < a_.width / 4; i += 32) {
      const FourOf<X> x = four_at(from + begin_, i);
      const FourOf<float> weight = four_at(a_.weight, i);
      float y[4];
      for (int k = 0; k < 4; ++k) y[k] = static_cast<float>(x.at[k]) * rate * weight.at[k];
      put_four(static_cast<Y*>(a_.y) + begin_, i, y);
    }
  }

  // Returns the lane's share of the row's sum of normed values, each times its gradient.
  [[nodiscard]] C10_HOST_DEVICE float products(float rate) const {
    float total = 0;
    each_gradient(rate, [&](std::int64_t, const float* normed, const float* gradient) {
      for (int k = 0; k < 4; ++k) total += normed[k] * gradient[k];
    });
    return total;
  }

  // Writes the lane's gradients. `product` is the row's mean of normed values, each times its gradient.
  C10_HOST_DEVICE void write_gradient(float rate, float product) const {
    each_gradient(rate, [&](std::int64_t i, const float* normed, const float* gradient) {
      float dx[4];
      for (int k = 0; k < 4; ++k) dx[k] = rms_gradient(gradient[k], normed[k], rate, product);
      if (a_.sum_gradient != nullptr) {
        const FourOf<X> more = four_at(static_cast<const X*>(a_.sum_gradient) + begin_, i);
        for (int k = 0; k < 4; ++k) dx[k] += static_cast<float>(more.at[k]);
      }
      put_four(static_cast<X*>(a_.x_gradient) + begin_, i, dx);
      if (a_.branch_gradient != nullptr) put_four(static_cast<Y*>(a_.branch_gradient) + begin_, i, dx);
    });
  }

 private:
  template <class Body>
  C10_HOST_DEVICE void each_gradient(float rate, const Body& body) const {
    for (std::int64_t i = lane_; i < a_.width / 4; i += 32) {
      const FourOf<X> x = four_at(static_cast<const X*>(a_.x) + begin_, i);
      const FourOf<Y> dy = four_at(static_cast<const Y*>(a_.y_gradient) + begin_, i);
      const FourOf<float> weight = four_at(a_.weight, i);
      float normed[4], gradient[4];
      for (int k = 0; k < 4; ++k) {
        normed[k] = static_cast<float>(x.at[k]) * rate;
        gradient[k] = static_cast<float>(dy.at[k]) * weight.at[k];
      }
      body(i, normed, gradient);
    }
  }

  const DeviceRms& a_;
  std::int64_t begin_;
  int lane_;
};

// Handles four neighbours of a row of DeviceSwiglu.
template <class X>
C10_HOST_DEVICE inline void swiglu_four(const DeviceSwiglu& a, std::int64_t row, std::int64_t i) {
  const X* const x = static_cast<const X*>(a.x) + 2 * row * a.width;
  const FourOf<X> gate = four_at(x, i), value = four_at(x + a.width, i);
  float first[4], second[4];
  if (a.gradient == nullptr) {
    for (int k = 0; k < 4; ++k) first[k] = silu_of(static_cast<float>(gate.at[k])) * static_cast<float>(value.at[k]);
    return put_four(static_cast<X*>(a.out) + row * a.width, i, first);
  }
  const FourOf<X> gradient = four_at(static_cast<const X*>(a.gradient) + row * a.width, i);
  for (int k = 0; k < 4; ++k) {
    const auto g = static_cast<float>(gradient.at[k]), h = static_cast<float>(gate.at[k]);
    first[k] = silu_gradient(g * static_cast<float>(value.at[k]), h);
    second[k] = g * silu_of(h);
  }
  X* const out = static_cast<X*>(a.out) + 2 * row * a.width;
  put_four(out, i, first);
  put_four(out + a.width, i, second);
}

// Handles four neighbours of each half of a head of DeviceTurn.
template <class X>
C10_HOST_DEVICE inline void turn_four(const DeviceTurn& a, std::int64_t sample, std::int64_t row, std::int64_t head,
                                      std::int64_t i) {
  const X* const x = static_cast<const X*>(a.x) + sample * a.batch_stride + row * a.row_stride + head * 2 * a.half;
  X* const out = static_cast<X*>(a.out) + sample * a.out_batch_stride + row * a.out_row_stride + head * 2 * a.half;
  const FourOf<X> lower = four_at(x, i), upper = four_at(x + a.half, i);
  const FourOf<float> cos = four_at(a.cos + row * a.half, i), sin = four_at(a.sin + row * a.half, i);
  float first[4], second[4];
  for (int k = 0; k < 4; ++k) {
    const auto l = static_cast<float>(lower.at[k]), u = static_cast<float>(upper.at[k]), s = a.back ? -sin.at[k] : sin.at[k];
    first[k] = l * cos.at[k] - u * s;
    second[k] = u * cos.at[k] + l * s;
  }
  put_four(out, i, first);
  put_four(out + a.half, i, second);
}

}  // namespace detail
}  // namespace millrace::kernels
