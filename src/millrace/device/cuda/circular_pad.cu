#include "millrace/device/cuda/circular_pad.h"

#include <algorithm>

#include "millrace/device/cuda/launch.h"
#include "millrace/kernels/circular_lane.h"

namespace millrace::device {
namespace {

using kernels::CircularPad;
using kernels::detail::PaddedVolume;
using kernels::detail::piece_of;
using kernels::detail::PixelPiece;
using kernels::detail::shown_at;
using kernels::detail::times_shown;

constexpr unsigned kThreads = 256;

// E is the type that a thread moves at once: an element, or several neighbouring elements.
template <class X, class E>
__global__ void __launch_bounds__(kThreads) pad(PaddedVolume v, const X* in, X* out, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  constexpr int kElements = sizeof(E) / sizeof(X);
  const PixelPiece at = piece_of(i, v.pixel / kElements, kElements, v.depth + 2, v.height + 2, v.width + 2);
  const std::int64_t from =
      plain_place(v, at.plane, kernels::detail::wrapped(at.d - 1, v.depth), kernels::detail::wrapped(at.h - 1, v.height),
                  kernels::detail::wrapped(at.w - 1, v.width));
  *reinterpret_cast<E*>(out + padded_place(v, at.plane, at.d, at.h, at.w) + at.element) =
      *reinterpret_cast<const E*>(in + from + at.element);
}

template <class X, class E>
__global__ void __launch_bounds__(kThreads) unpad(PaddedVolume v, const X* in, X* out, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  constexpr int kElements = sizeof(E) / sizeof(X);
  const PixelPiece at = piece_of(i, v.pixel / kElements, kElements, v.depth, v.height, v.width);
  const int depths = times_shown(at.d, v.depth), heights = times_shown(at.h, v.height), widths = times_shown(at.w, v.width);
  float sums[kElements] = {};
#pragma unroll 1
  for (int d = 0; d < depths; ++d) {
#pragma unroll 1
    for (int h = 0; h < heights; ++h) {
#pragma unroll 1
      for (int w = 0; w < widths; ++w) {
        const X* const from =
            in + padded_place(v, at.plane, shown_at(at.d, v.depth, d), shown_at(at.h, v.height, h), shown_at(at.w, v.width, w)) +
            at.element;
        const E piece = *reinterpret_cast<const E*>(from);
        const X* const elements = reinterpret_cast<const X*>(&piece);
#pragma unroll
        for (int k = 0; k < kElements; ++k) sums[k] += static_cast<float>(elements[k]);
      }
    }
  }
  E result;
  X* const elements = reinterpret_cast<X*>(&result);
#pragma unroll
  for (int k = 0; k < kElements; ++k) elements[k] = static_cast<X>(sums[k]);
  *reinterpret_cast<E*>(out + plain_place(v, at.plane, at.d, at.h, at.w) + at.element) = result;
}

template <class X, class E>
cudaError_t launch_all(const CircularPad& args, cudaStream_t stream) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const PaddedVolume& whole = args.volume;
  const std::int64_t pieces = whole.pixel / static_cast<std::int64_t>(sizeof(E) / sizeof(X));
  const std::int64_t edge = args.backward ? 0 : 2;
  const std::int64_t of_sample = whole.planes * (whole.depth + edge) * (whole.height + edge) * (whole.width + edge) * pieces;
  if (of_sample >= kMost) return cudaErrorInvalidValue;
  const std::int64_t at_once = std::max<std::int64_t>(1, (kMost - 1) / of_sample);
  for (std::int64_t first = 0; first < whole.samples; first += at_once) {
    PaddedVolume some = whole;
    some.samples = std::min(at_once, whole.samples - first);
    const std::int64_t plain = first * whole.planes * whole.depth * whole.height * whole.row(),
                       padded = first * whole.padded_stride;
    const auto* in = static_cast<const X*>(args.in) + (args.backward ? padded : plain);
    auto* out = static_cast<X*>(args.out) + (args.backward ? plain : padded);
    const auto count = static_cast<std::uint32_t>(of_sample * some.samples);
    const unsigned blocks = (count + kThreads - 1) / kThreads;
    if (args.backward) {
      unpad<X, E><<<blocks, kThreads, 0, stream>>>(some, in, out, count);
    } else {
      pad<X, E><<<blocks, kThreads, 0, stream>>>(some, in, out, count);
    }
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_circular_pad(const CircularPad& args, cudaStream_t stream) {
  return with_types(args.type, args.type, [&]<class X, class>() {
    const PaddedVolume& v = args.volume;
    const auto whole = [](std::int64_t number) { return number % Piece<X>::kElements == 0; };
    const auto begins_piece = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<X>) == 0; };
    const bool pieces =
        whole(v.pixel) && whole(v.step) && whole(v.padded_first) && begins_piece(args.in) && begins_piece(args.out);
    return pieces ? launch_all<X, Piece<X>>(args, stream) : launch_all<X, X>(args, stream);
  });
}

}  // namespace millrace::device
