#include "millrace/kernels/circular_pad.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/pad.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/circular_lane.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"

namespace millrace::kernels {
namespace {

using Geometry = detail::PaddedVolume;
using detail::shown_at;
using detail::times_shown;
using detail::wrapped;

// Geometry of `channels` channels, beginning at channel `first` of the `all` channels in the padded volume.
Geometry geometry(at::IntArrayRef sizes, std::int64_t first, std::int64_t all, at::MemoryFormat layout) {
  const bool last = layout == at::MemoryFormat::ChannelsLast3d;
  const std::int64_t channels = sizes[1];
  Geometry g{.samples = sizes[0],
             .planes = last ? 1 : channels,
             .depth = sizes[2],
             .height = sizes[3],
             .width = sizes[4],
             .pixel = last ? channels : 1,
             .step = last ? all : 1,
             .padded_first = 0,
             .padded_stride = 0};
  g.padded_first = last ? first : first * g.padded_plane();
  g.padded_stride = last ? g.padded_plane() : all * g.padded_plane();
  return g;
}

template <class T>
void pad_row(const Geometry& g, const T* in, T* out) {
  const auto bytes = static_cast<std::size_t>(g.pixel) * sizeof(T);
  if (g.step == g.pixel) {
    std::memcpy(out + g.step, in, static_cast<std::size_t>(g.row()) * sizeof(T));
  } else {
    for (std::int64_t w = 0; w < g.width; ++w) std::memcpy(out + (w + 1) * g.step, in + w * g.pixel, bytes);
  }
  std::memcpy(out, in + (g.width - 1) * g.pixel, bytes);
  std::memcpy(out + (g.width + 1) * g.step, in, bytes);
}

template <class T>
void pad(const Geometry& g, const T* in, T* out) {
  const std::int64_t slabs = g.depth + 2;
  parallel(g.samples * g.planes * slabs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t plane = item / slabs;
      const std::int64_t d = item % slabs;
      T* to = out + (plane / g.planes) * g.padded_stride + g.padded_first + (plane % g.planes) * g.padded_plane() +
              d * (g.height + 2) * g.padded_row();
      const T* from = in + (plane * g.depth + wrapped(d - 1, g.depth)) * g.height * g.row();
      for (std::int64_t h = 0; h < g.height + 2; ++h) {
        pad_row(g, from + wrapped(h - 1, g.height) * g.row(), to + h * g.padded_row());
      }
    }
  });
}

float wide(float x) { return x; }
float wide(c10::BFloat16 x) { return static_cast<float>(x); }

// Adds the padded row `from` to sum (row() floats). The two ends of `from` are added to the pixels that they repeat.
template <class T>
void add_row(const Geometry& g, const T* from, float* sum) {
  const auto add_pixel = [&](const T* pixel, float* to) {
    for (std::int64_t c = 0; c < g.pixel; ++c) to[c] += wide(pixel[c]);
  };
  if (g.step == g.pixel) {
    for (std::int64_t i = 0; i < g.row(); ++i) sum[i] += wide(from[g.step + i]);
  } else {
    for (std::int64_t w = 0; w < g.width; ++w) add_pixel(from + (w + 1) * g.step, sum + w * g.pixel);
  }
  add_pixel(from, sum + (g.width - 1) * g.pixel);
  add_pixel(from + (g.width + 1) * g.step, sum);
}

template <class T>
void unpad(const Geometry& g, const T* in, T* out) {
  parallel(g.samples * g.planes * g.depth, [&](std::int64_t begin, std::int64_t end) {
    auto* sum = static_cast<float*>(scratch(static_cast<std::size_t>(g.row()) * sizeof(float)));
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t plane = item / g.depth;
      const T* from = in + (plane / g.planes) * g.padded_stride + g.padded_first + (plane % g.planes) * g.padded_plane();
      const std::int64_t d = item % g.depth;
      for (std::int64_t h = 0; h < g.height; ++h) {
        std::memset(sum, 0, static_cast<std::size_t>(g.row()) * sizeof(float));
        for (int i = 0; i < times_shown(d, g.depth); ++i) {
          for (int j = 0; j < times_shown(h, g.height); ++j) {
            const std::int64_t row = shown_at(d, g.depth, i) * (g.height + 2) + shown_at(h, g.height, j);
            add_row(g, from + row * g.padded_row(), sum);
          }
        }
        T* to = out + (item * g.height + h) * g.row();
        for (std::int64_t i = 0; i < g.row(); ++i) to[i] = static_cast<T>(sum[i]);
      }
    }
  });
}

// Runs the device's kernel on the part of the padded volume that holds the channels of `g`.
void run_on_device(const Geometry& g, const at::Tensor& in, const at::Tensor& out, bool backward) {
  const CircularPad args{
      .in = in.const_data_ptr(), .out = out.mutable_data_ptr(), .type = type_of(in), .volume = g, .backward = backward};
  device_table(in.device().type())->circular_pad(args, in.device().index());
}

template <class Run>
void with_element(const at::Tensor& x, Run run) {
  if (x.scalar_type() == at::kFloat) {
    run(static_cast<float*>(nullptr));
  } else {
    run(static_cast<c10::BFloat16*>(nullptr));
  }
}

struct CircularPadFunction : torch::autograd::Function<CircularPadFunction> {
  using Context = torch::autograd::AutogradContext;

  static at::Tensor forward(Context* context, const at::Tensor& x, const std::optional<at::Tensor>& more) {
    const at::MemoryFormat layout = layout_of(x);
    const std::int64_t channels = x.size(1) + (more ? more->size(1) : 0);
    at::Tensor out =
        at::empty({x.size(0), channels, x.size(2) + 2, x.size(3) + 2, x.size(4) + 2}, x.options().memory_format(layout));
    std::vector<std::int64_t> parts;
    std::int64_t first = 0;
    for (const at::Tensor& part : {x, more.value_or(at::Tensor())}) {
      if (!part.defined()) break;
      const at::Tensor input = part.contiguous(layout);
      const Geometry g = geometry(part.sizes(), first, channels, layout);
      if (!x.is_cpu()) run_on_device(g, input, out, /*backward=*/false);
      if (x.is_cpu()) with_element(x, [&]<class T>(T*) { pad(g, input.const_data_ptr<T>(), out.mutable_data_ptr<T>()); });
      first += part.size(1);
      parts.push_back(part.size(1));
    }
    context->saved_data["parts"] = parts;
    context->saved_data["last"] = layout == at::MemoryFormat::ChannelsLast3d;
    return out;
  }

  static torch::autograd::variable_list backward(Context* context, const torch::autograd::variable_list& gradients) {
    only_first_derivative("a circular padding");
    const auto layout = context->saved_data["last"].toBool() ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::Contiguous;
    const auto parts = context->saved_data["parts"].toIntVector();
    const at::Tensor gradient = gradients[0].contiguous(layout);
    torch::autograd::variable_list result(2);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (context->needs_input_grad(i)) {
        at::Tensor out = at::empty({gradient.size(0), parts[i], gradient.size(2) - 2, gradient.size(3) - 2, gradient.size(4) - 2},
                                   gradient.options().memory_format(layout));
        const Geometry g = geometry(out.sizes(), first, gradient.size(1), layout);
        if (!out.is_cpu()) run_on_device(g, gradient, out, /*backward=*/true);
        if (out.is_cpu())
          with_element(gradient, [&]<class T>(T*) { unpad(g, gradient.const_data_ptr<T>(), out.mutable_data_ptr<T>()); });
        result[i] = std::move(out);
      }
      first += parts[i];
    }
    return result;
  }
};

}  // namespace

at::Tensor circular_pad(const at::Tensor& x, const at::Tensor& more) {
  MR_CHECK(x.dim() == 5, "circular_pad takes volumes (N, C, D, H, W)");
  MR_CHECK(!more.defined() || differ_in_channels_alone(x, more),
           "circular_pad: the two volumes differ in more than their channels");
  if ((!has_kernel(x) && !has_device_kernel(x)) || x.numel() == 0) return circular_pad_plain(x, more);
  const OperationSpan span("millrace::circular_pad", x, more);
  return CircularPadFunction::apply(x, optional(more));
}

at::Tensor circular_pad_plain(const at::Tensor& x, const at::Tensor& more) {
  return at::pad(more.defined() ? at::cat({x, more}, 1) : x, {1, 1, 1, 1, 1, 1}, "circular");
}

}  // namespace millrace::kernels
