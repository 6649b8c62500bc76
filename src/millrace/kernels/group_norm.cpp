#include "millrace/kernels/group_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/kernels/arguments.h"
#include "millrace/kernels/backward_rules.h"
#include "millrace/kernels/convolution_weights.h"
#include "millrace/kernels/device_group_norm.h"
#include "millrace/kernels/operation_span.h"
#include "millrace/kernels/parallel.h"
#include "millrace/kernels/widened.h"

namespace millrace::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Threads share the work by segments. The size of a segment depends only on the tensor's sizes, so that a sum has the same bits
// for any number of threads.
// Contiguous: number of positions of one channel in a segment, which then stays in the level 1 cache.
constexpr std::int64_t kChannelSegment = 4096;
// Channels last: a sample has kVolumeSegments segments, but fewer if segments would be too small for a thread, and more if
// segments would not stay in the level 2 cache.
constexpr std::int64_t kVolumeSegments = 32;
constexpr std::int64_t kFewestElements = 1 << 13U;
constexpr std::int64_t kMostElements = 1 << 16U;
constexpr std::int64_t kFewestPositions = 16;  // least number of positions in a segment, for any number of channels

// A norm of one tensor: its geometry, and the numbers of each sample and channel for the second pass.
class Norm {
 public:
  Norm(const at::Tensor& x, std::int64_t groups, bool silu, double slope)
      : groups_(groups), statistics_(at::empty({2, x.size(0) * groups}, x.options().dtype(at::kFloat))) {
    a_ = {.x = x.const_data_ptr(),
          .gradient = nullptr,
          .out = nullptr,
          .type = type_of(x),
          .samples = x.size(0),
          .channels = x.size(1),
          .positions = x.numel() / (x.size(0) * x.size(1)),
          .channels_last = layout_of(x) != at::MemoryFormat::Contiguous,
          .silu = silu,
          .slope = static_cast<float>(slope)};
    a_.segment = kChannelSegment;
    if (a_.channels_last) {
      const std::int64_t share = (a_.positions + kVolumeSegments - 1) / kVolumeSegments;
      const std::int64_t most = std::max(kFewestPositions, kMostElements / a_.channels);
      a_.segment = std::min(most, std::max({share, kFewestPositions, kFewestElements / a_.channels}));
    }
    a_.segments = (a_.positions + a_.segment - 1) / a_.segment;
    const auto numbers = static_cast<std::size_t>(a_.samples * a_.channels);
    scale_.resize(numbers);
    shift_.resize(numbers);
    a_.scale = scale_.data();
    a_.shift = shift_.data();
    partials_.resize(2 * numbers * static_cast<std::size_t>(a_.segments));
    a_.partials = partials_.data();
  }

  // {mean, rate} of each sample's groups, with rate = 1 / sqrt(variance + epsilon).
  [[nodiscard]] const at::Tensor& statistics() const { return statistics_; }

  at::Tensor forward(const at::Tensor& x, const float* weight, const float* bias, double epsilon) {
    at::Tensor out = at::empty_like(x);
    a_.out = out.mutable_data_ptr();
    const detail::Table& table = detail::table();
    in_two_passes(table.group_norm_moments, table.group_norm_apply, [&](std::int64_t group) {
      take_moments(group, epsilon);
      spread(group, weight, bias);
    });
    return out;
  }

  // Computes the result of forward() again, from these statistics.
  at::Tensor again(const at::Tensor& x, const at::Tensor& statistics, const float* weight, const float* bias) {
    at::Tensor out = at::empty_like(x);
    a_.out = out.mutable_data_ptr();
    statistics_ = statistics;
    for (std::int64_t group = 0; group < a_.samples * groups_; ++group) spread(group, weight, bias);
    const detail::Table& table = detail::table();
    parallel(a_.samples * a_.segments * (a_.channels_last ? 1 : a_.channels),
             [&](std::int64_t begin, std::int64_t end) { table.group_norm_apply(a_, begin, end); });
    return out;
  }

  // Returns the gradient of x. Adds the gradients of weight and bias to `of_weight` and `of_bias`, one number for each channel
  // and sample. `may_overwrite`: the result may overwrite `gradient`.
  at::Tensor backward(const at::Tensor& x, const at::Tensor& gradient, bool may_overwrite, const at::Tensor& statistics,
                      const float* weight, const float* bias, double* of_weight, double* of_bias) {
    at::Tensor out = may_overwrite ? gradient : at::empty_like(x);
    a_.gradient = gradient.const_data_ptr();
    a_.out = out.mutable_data_ptr();
    statistics_ = statistics;
    factor_.resize(scale_.size());
    offset_.resize(scale_.size());
    a_.factor = factor_.data();
    a_.offset = offset_.data();
    for (std::int64_t group = 0; group < a_.samples * groups_; ++group) {
      spread(group, weight, bias);
      const auto channels = channels_of(group);
      std::fill(factor_.begin() + channels.first, factor_.begin() + channels.last, rate_of(group));
      std::fill(offset_.begin() + channels.first, offset_.begin() + channels.last, -mean_of(group) * rate_of(group));
    }
    const detail::Table& table = detail::table();
    in_two_passes(table.group_norm_sums, table.group_norm_apply,
                  [&](std::int64_t group) { take_sums(group, weight, of_weight, of_bias); });
    return out;
  }

 private:
  struct Channels {
    std::int64_t first, last;  // channels, counted over all samples
  };
  [[nodiscard]] Channels channels_of(std::int64_t group) const {
    const std::int64_t width = a_.channels / groups_;
    return {group * width, (group + 1) * width};
  }
  [[nodiscard]] float mean_of(std::int64_t group) const { return statistics_.const_data_ptr<float>()[group]; }
  [[nodiscard]] float rate_of(std::int64_t group) const {
    return statistics_.const_data_ptr<float>()[a_.samples * groups_ + group];
  }
  [[nodiscard]] double elements_of_group() const {
    const std::int64_t width = a_.channels / groups_;
    return static_cast<double>(width * a_.positions);
  }

  // Calls body(first sum, second sum, number of positions) for each segment of a channel.
  template <class Body>
  void for_each_segment(std::int64_t channel, const Body& body) const {
    for (std::int64_t s = 0; s < a_.segments; ++s) {
      const std::int64_t positions = std::min(a_.segment, a_.positions - s * a_.segment);
      const float* sums = a_.partials;
      if (a_.channels_last) {
        sums += 2 * (channel / a_.channels * a_.segments + s) * a_.channels + channel % a_.channels;
        body(double{sums[0]}, double{sums[a_.channels]}, static_cast<double>(positions));
      } else {
        sums += 2 * (channel * a_.segments + s);
        body(double{sums[0]}, double{sums[1]}, static_cast<double>(positions));
      }
    }
  }

  void take_moments(std::int64_t group, double epsilon) {
    const Channels channels = channels_of(group);
    double total = 0;
    double squares = 0;
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      for_each_segment(c, [&](double sum, double, double) { total += sum; });
    }
    const double mean = total / elements_of_group();
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      for_each_segment(c, [&](double sum, double from_mean, double positions) {
        const double distance = sum / positions - mean;
        squares += from_mean + positions * distance * distance;
      });
    }
    auto* statistics = statistics_.mutable_data_ptr<float>();
    statistics[group] = static_cast<float>(mean);
    statistics[a_.samples * groups_ + group] = static_cast<float>(1.0 / std::sqrt(squares / elements_of_group() + epsilon));
  }

  // Sets scale and shift for the channels of a group: x * scale + shift = (x - mean) * rate * weight + bias.
  void spread(std::int64_t group, const float* weight, const float* bias) {
    const Channels channels = channels_of(group);
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      const auto at = static_cast<std::size_t>(c);
      scale_[at] = rate_of(group) * (weight == nullptr ? 1.0F : weight[c % a_.channels]);
      shift_[at] = (bias == nullptr ? 0.0F : bias[c % a_.channels]) - mean_of(group) * scale_[at];
    }
  }

  // Adds up the gradients of weight and bias, and sets the numbers of the second pass. With n = (x - mean) * rate and the
  // gradient u of n, the gradient of x is rate * (u - mean(u) - n * mean(u n)).
  void take_sums(std::int64_t group, const float* weight, double* of_weight, double* of_bias) {
    const Channels channels = channels_of(group);
    double total = 0;
    double products = 0;
    for (std::int64_t c = channels.first; c < channels.last; ++c) {
      of_weight[c] = of_bias[c] = 0;
      for_each_segment(c, [&](double sum, double product, double) {
        of_bias[c] += sum;
        of_weight[c] += product;
      });
      const double w = weight == nullptr ? 1.0 : double{weight[c % a_.channels]};
      total += w * of_bias[c];
      products += w * of_weight[c];
    }
    const double rate = rate_of(group);
    const double factor = -rate * rate * products / elements_of_group();
    const double offset = -rate * total / elements_of_group() - factor * mean_of(group);
    std::fill(factor_.begin() + channels.first, factor_.begin() + channels.last, static_cast<float>(factor));
    std::fill(offset_.begin() + channels.first, offset_.begin() + channels.last, static_cast<float>(offset));
  }

  // In contiguous volumes with enough groups for all threads, each group goes through both passes while it is in the cache. In
  // other volumes the whole tensor goes through the first pass and then through the second.
  template <class Pass, class Between>
  void in_two_passes(Pass first, Pass second, const Between& between) {
    const std::int64_t pairs = a_.samples * groups_;
    const std::int64_t threads = at::get_num_threads();
    if (!a_.channels_last && (pairs % threads == 0 || pairs >= 4 * threads)) {
      const std::int64_t shares = a_.channels / groups_ * a_.segments;
      parallel(pairs, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t group = begin; group < end; ++group) {
          first(a_, group * shares, (group + 1) * shares);
          between(group);
          second(a_, group * shares, (group + 1) * shares);
        }
      });
      return;
    }
    const std::int64_t shares = a_.samples * a_.segments * (a_.channels_last ? 1 : a_.channels);
    parallel(shares, [&](std::int64_t begin, std::int64_t end) { first(a_, begin, end); });
    for (std::int64_t group = 0; group < pairs; ++group) between(group);
    parallel(shares, [&](std::int64_t begin, std::int64_t end) { second(a_, begin, end); });
  }

  std::int64_t groups_;
  detail::GroupNorm a_{};
  at::Tensor statistics_;
  std::vector<float> scale_, shift_, factor_, offset_, partials_;
};

const float* numbers(const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; }

// The tensors that a norm's backward pass needs besides x: weight, bias (or neither) and statistics.
struct Saved {
  at::Tensor weight, bias, statistics;
  std::int64_t groups = 1;
  bool silu = false;
  double slope = 1;
};

void keep(AutogradContext* context, const GroupNormOptions& options) {
  context->saved_data["groups"] = options.groups;
  context->saved_data["silu"] = options.silu;
  context->saved_data["slope"] = options.slope;
}

Saved saved_of(AutogradContext* context, const variable_list& tensors) {
  return {tensors[1],
          tensors[2],
          tensors[3],
          context->saved_data["groups"].toInt(),
          context->saved_data["silu"].toBool(),
          context->saved_data["slope"].toDouble()};
}

// Gradients of x, weight and bias. `may_overwrite`: no other code reads `gradient`, so that it may be overwritten.
variable_list norm_gradients(const at::Tensor& x, const at::Tensor& gradient, bool may_overwrite, const Saved& saved) {
  Norm norm(x, saved.groups, saved.silu, saved.slope);
  const std::int64_t samples = x.size(0);
  const std::int64_t channels = x.size(1);
  std::vector<double> of_weight(static_cast<std::size_t>(samples * channels));
  std::vector<double> of_bias(of_weight.size());
  variable_list result(3);
  result[0] = norm.backward(x, gradient.contiguous(layout_of(x)), may_overwrite, saved.statistics, numbers(saved.weight),
                            numbers(saved.bias), of_weight.data(), of_bias.data());
  if (!saved.weight.defined()) return result;
  const auto summed = [&](const std::vector<double>& values) {
    at::Tensor sums = at::empty({channels}, x.options().dtype(at::kFloat));
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t n = 0; n < samples; ++n) sum += values[static_cast<std::size_t>(n * channels + c)];
      sums.mutable_data_ptr<float>()[c] = static_cast<float>(sum);
    }
    return sums;
  };
  result[1] = summed(of_weight);
  result[2] = summed(of_bias);
  return result;
}

struct GroupNormFunction : torch::autograd::Function<GroupNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const GroupNormOptions& options) {
    const at::Tensor input = x.contiguous(layout_of(x));
    const at::Tensor scale = weight ? weight->contiguous() : at::Tensor();
    const at::Tensor shift = bias ? bias->contiguous() : at::Tensor();
    Norm norm(input, options.groups, options.silu, options.slope);
    at::Tensor out = norm.forward(input, numbers(scale), numbers(shift), options.epsilon);
    context->save_for_backward({input, scale, shift, norm.statistics()});
    keep(context, options);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a group norm");
    const variable_list tensors = context->get_saved_variables();
    variable_list result = norm_gradients(tensors[0], gradients[0], false, saved_of(context, tensors));
    result.resize(4);
    return result;
  }
};

constexpr std::array<std::int64_t, 3> kByOne{1, 1, 1};
constexpr std::array<std::int64_t, 3> kNoPadding{0, 0, 0};

constexpr std::size_t kNormed = 6;  // index of the norm's result among the saved tensors, if it was saved

struct GroupNormConvolutionFunction : torch::autograd::Function<GroupNormConvolutionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& conv_weight, const at::Tensor& conv_bias, const GroupNormOptions& options,
                            bool lean) {
    const at::Tensor input = x.contiguous(layout_of(x));
    const at::Tensor scale = weight.contiguous();
    const at::Tensor shift = bias.contiguous();
    Norm norm(input, options.groups, options.silu, options.slope);
    const at::Tensor normed = norm.forward(input, numbers(scale), numbers(shift), options.epsilon);
    variable_list kept = {input, scale, shift, norm.statistics(), conv_weight, conv_bias};
    if (!lean) kept.push_back(normed);
    context->save_for_backward(std::move(kept));
    keep(context, options);
    return at::conv3d(normed, conv_weight.to(x.scalar_type()), conv_bias.to(x.scalar_type()), kByOne, kByOne);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    only_first_derivative("a group norm");
    const variable_list tensors = context->get_saved_variables();
    const Saved saved = saved_of(context, tensors);
    const at::Tensor &x = tensors[0], &weight = tensors[4], &bias = tensors[5];
    const at::Tensor cast = weight.to(x.scalar_type());
    variable_list result(7);
    // The gradients of the convolution's weight and bias are computed first, because only they need the norm's result.
    if (context->needs_input_grad(3) || context->needs_input_grad(4)) {
      const at::Tensor normed = tensors.size() > kNormed
                                    ? tensors[kNormed]
                                    : Norm(x, saved.groups, saved.silu, saved.slope)
                                          .again(x, saved.statistics, numbers(saved.weight), numbers(saved.bias));
      ConvolutionWeights sums =
          convolution_weights(normed, gradients[0], cast, context->needs_input_grad(3), context->needs_input_grad(4));
      if (sums.weight.defined()) result[3] = std::move(sums.weight);
      if (sums.bias.defined()) result[4] = std::move(sums.bias);
    }
    if (context->needs_input_grad(0) || context->needs_input_grad(1) || context->needs_input_grad(2)) {
      // `x` stands for the convolution's input; only its sizes are used.
      const auto of_input = at::convolution_backward(gradients[0], x, cast, bias.sizes(), kByOne, kByOne, kByOne, false,
                                                     kNoPadding, 1, {true, false, false});
      variable_list of_norm = norm_gradients(x, std::get<0>(of_input), true, saved);
      std::move(of_norm.begin(), of_norm.end(), result.begin());
    }
    return result;
  }
};

bool fits(const at::Tensor& numbers) { return !numbers.defined() || (numbers.is_cpu() && numbers.scalar_type() == at::kFloat); }

}  // namespace

at::Tensor group_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const GroupNormOptions& options) {
  MR_CHECK(x.dim() >= 2 && options.groups > 0 && x.size(1) % options.groups == 0,
           "group_norm takes (N, C, ...) and a number of groups that divides C");
  MR_CHECK(
      weight.defined() == bias.defined() && (!weight.defined() || (weight.numel() == x.size(1) && bias.numel() == x.size(1))),
      "group_norm takes a weight and a bias for each channel, or neither");
  const bool is_there = has_device_group_norm(x, weight, bias);
  if (!is_there && (!has_kernel(x) || x.numel() == 0 || !fits(weight) || !fits(bias)))
    return group_norm_plain(x, weight, bias, options);
  if (is_there) return device_group_norm(x, {}, weight, bias, options).y;
  const OperationSpan span("millrace::group_norm", x);
  return GroupNormFunction::apply(x, optional(weight), optional(bias), options);
}

at::Tensor group_norm_conv3d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormOptions& options, const at::Tensor& conv_weight, const at::Tensor& conv_bias,
                             bool lean) {
  if (x.dim() != 5 || !has_kernel(x) || x.numel() == 0 || !fits(weight) || !fits(bias) || !conv_bias.defined()) {
    const auto shift = conv_bias.defined() ? std::optional(conv_bias.to(x.scalar_type())) : std::nullopt;
    return at::conv3d(group_norm(x, weight, bias, options), conv_weight.to(x.scalar_type()), shift, kByOne, kByOne);
  }
  MR_CHECK(options.groups > 0 && x.size(1) % options.groups == 0 && weight.numel() == x.size(1) && bias.numel() == x.size(1),
           "group_norm_conv3d takes a number of groups that divides C, and a weight and a bias for each channel");
  const OperationSpan span("millrace::group_norm_conv3d", x, conv_weight);
  return GroupNormConvolutionFunction::apply(x, weight, bias, conv_weight, conv_bias, options, lean);
}

at::Tensor group_norm_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const GroupNormOptions& options) {
  const at::Tensor h = at::group_norm(wide(x), options.groups, optional(weight), optional(bias), options.epsilon);
  const at::Tensor y = options.silu ? at::silu(h) : options.slope == 1.0 ? h : at::leaky_relu(h, options.slope);
  return y.to(x.scalar_type());
}

}  // namespace millrace::kernels
