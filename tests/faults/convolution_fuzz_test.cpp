// Convolutions of random shapes, as in U-Nets and autoencoders, behind the guard and a trial as in a run: each one ends and is
// right, in both formats and layouts and with any number of threads. MILLRACE_FUZZ_SHAPES is the number of shapes; a failure
// names the wrong shape and the trial's result.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <span>
#include <sstream>

#include "millrace/device/convolution_guard.h"
#include "millrace/device/convolution_trial.h"
#include "millrace/device/operation_marks.h"
#include "millrace/device/preflight.h"

namespace millrace::device {
namespace {

struct Case {
  std::vector<std::int64_t> input, weight, stride, padding;
  bool transposed = false;
  int threads = 1;
};

std::int64_t one_of(std::mt19937& random, std::initializer_list<std::int64_t> values) {
  return *(values.begin() + std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random));
}

std::int64_t between(std::mt19937& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

// Half of them as the convolutions of a volume network, kernel 3 or 1; the others with any kernel and stride, in two directions
// or three. Now and then a volume is tall and narrow.
Case draw(std::mt19937& random) {
  Case drawn;
  const bool is_volume = between(random, 0, 3) > 0;
  const bool is_usual = between(random, 0, 1) == 0;
  const std::size_t directions = is_volume ? 3 : 2;
  drawn.transposed = between(random, 0, 3) == 0;
  const std::int64_t in = between(random, 1, 16), out = between(random, 1, 16);
  drawn.input = {between(random, 1, 3), in};
  drawn.weight = drawn.transposed ? std::vector{in, out} : std::vector{out, in};
  const std::int64_t kernel = one_of(random, {1, 2, 3, 3, 5}), stride = one_of(random, {1, 1, 2, 3});
  for (std::size_t i = 0; i < directions; ++i) {
    const std::int64_t size = is_usual ? kernel : between(random, 1, 4);
    drawn.weight.push_back(size);
    drawn.stride.push_back(is_usual ? stride : between(random, 1, 4));
    drawn.padding.push_back(between(random, 0, size / 2));
    const std::int64_t least = drawn.transposed ? size : std::max<std::int64_t>(1, size - 2 * drawn.padding.back());
    drawn.input.push_back(between(random, least, between(random, 0, 2) == 0 ? size : 19));  // now and then a short axis
  }
  if (is_volume && between(random, 0, 5) == 0) {
    drawn.input[2] = between(random, drawn.weight[2], 6);
    drawn.input[3] = one_of(random, {257, 512, 1023});
    drawn.input[4] = between(random, drawn.weight[4], 8);
  }
  drawn.threads = static_cast<int>(between(random, 1, 4));
  return drawn;
}

std::string text_of(const Case& drawn, at::ScalarType format, bool channels_last) {
  std::ostringstream text;
  text << (drawn.transposed ? "transposed " : "") << format << " " << at::IntArrayRef(drawn.input) << " x "
       << at::IntArrayRef(drawn.weight) << " stride " << at::IntArrayRef(drawn.stride) << " padding "
       << at::IntArrayRef(drawn.padding) << " threads " << drawn.threads << (channels_last ? " channels-last" : "");
  return text.str();
}

struct Operands {
  at::Tensor input, weight, bias, direction;
};

at::Tensor noise(const std::vector<std::int64_t>& sizes, std::mt19937& random) {
  std::normal_distribution<float> normal;
  at::Tensor values = at::empty(sizes, at::kFloat);
  std::generate_n(values.mutable_data_ptr<float>(), values.numel(), [&] { return normal(random); });
  return values.to(at::kBFloat16).to(at::kFloat);  // the same numbers in each format
}

std::vector<at::Tensor> results(const Case& drawn, const Operands& of, at::ScalarType format, bool channels_last) {
  const auto last = drawn.input.size() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  const auto own = [&](const at::Tensor& tensor) {
    const at::Tensor copy = tensor.to(format, /*non_blocking=*/false, /*copy=*/true);
    return (channels_last && copy.dim() > 3 ? copy.contiguous(last) : copy).detach().requires_grad_();
  };
  const at::Tensor input = own(of.input), weight = own(of.weight), bias = own(of.bias);
  const std::vector<std::int64_t> ones(drawn.stride.size(), 1), zeros(drawn.stride.size(), 0);
  const at::Tensor output = at::convolution(input, weight, bias, drawn.stride, drawn.padding, ones, drawn.transposed, zeros, 1);
  output.backward(own(of.direction).detach());
  return {output.detach(), input.grad(), weight.grad(), bias.grad()};
}

int threads_of(const Case& drawn) { return std::min(drawn.threads, most_threads()); }

ConvolutionShape shape_of(const Case& drawn) {
  const std::vector<std::int64_t> ones(drawn.stride.size(), 1), zeros(drawn.stride.size(), 0);
  return {drawn.transposed, drawn.input, drawn.weight, drawn.stride, drawn.padding, ones, zeros, 1};
}

std::int64_t count(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool has_output(const Case& drawn) {
  const ConvolutionShape shape = shape_of(drawn);
  const ConvolutionCall call{.transposed = shape.transposed,
                             .input = shape.input,
                             .weight = shape.weight,
                             .stride = shape.stride,
                             .padding = shape.padding,
                             .dilation = shape.dilation};
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < drawn.stride.size(); ++i) sizes.push_back(output_size(call, i));
  return std::ranges::min(sizes) > 0 && count(sizes) > 0;
}

// As a run does before it computes in bf16: what is found to hang, crash or be wrong is computed in fp32 from then on.
void try_in_bf16(const std::vector<Case>& cases) {
  for (int threads = 1; threads <= 4; ++threads) {
    std::vector<ConvolutionShape> shapes;
    for (const Case& drawn : cases) {
      if (threads_of(drawn) == threads) shapes.push_back(shape_of(drawn));
    }
    const ConvolutionTrial trial = try_convolutions(shapes, threads);
    EXPECT_EQ(trial.untried, "");
    for (const FoundFault& fault : trial.faults) {
      std::cout << "found here: " << name_of(fault.pass) << " of " << to_text(fault.shape) << " with " << threads
                << " threads: " << fault.what << "\n";
    }
    guard_also(trial.faults);
  }
}

TEST(ConvolutionFuzz, RandomShapesEndAndAgreeWithFp32OfOneThread) {
  const char* wish = std::getenv("MILLRACE_FUZZ_SHAPES");
  const int shapes = wish == nullptr ? 40 : std::atoi(wish);
  const int threads = at::get_num_threads();
  (void)guard_convolutions();
  mark_convolutions();
  std::mt19937 random(20261122);
  std::vector<Case> cases;
  while (static_cast<int>(cases.size()) < shapes) {
    const Case drawn = draw(random);
    if (has_output(drawn)) cases.push_back(drawn);
  }
  try_in_bf16(cases);
  for (const Case& drawn : cases) {
    Operands operands{
        noise(drawn.input, random), noise(drawn.weight, random), noise({drawn.weight[drawn.transposed ? 1 : 0]}, random), {}};
    const std::vector<std::int64_t> ones(drawn.stride.size(), 1), zeros(drawn.stride.size(), 0);
    const at::Tensor output = at::convolution(operands.input, operands.weight, operands.bias, drawn.stride, drawn.padding, ones,
                                              drawn.transposed, zeros, 1);
    operands.direction = noise(output.sizes().vec(), random);
    at::set_num_threads(1);
    const std::vector<at::Tensor> expected = results(drawn, operands, at::kDouble, false);
    at::set_num_threads(threads_of(drawn));
    for (const at::ScalarType format : {at::kFloat, at::kBFloat16}) {
      for (const bool channels_last : {false, true}) {
        SCOPED_TRACE(text_of(drawn, format, channels_last));
        const std::vector<at::Tensor> found = results(drawn, operands, format, channels_last);
        for (std::size_t j = 0; j < found.size(); ++j) {
          const double size = expected[j].norm().item<double>();
          const double error = (found[j].to(at::kDouble) - expected[j]).norm().item<double>();
          EXPECT_LE(error, (format == at::kFloat ? 1e-5 : 0.02) * size) << "0 output, 1 input, 2 weight, 3 bias: " << j;
        }
      }
    }
  }
  at::set_num_threads(threads);
  set_convolution_watcher(nullptr);
}

}  // namespace
}  // namespace millrace::device
