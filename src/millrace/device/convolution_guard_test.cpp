#include "millrace/device/convolution_guard.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <tuple>

#include "millrace/device/autocast.h"

namespace millrace::device {
namespace {

Cpu cpu_with(OnednnIsa isa) {
  return {.avx2 = isa >= OnednnIsa::avx2,
          .avx512 = isa >= OnednnIsa::avx512,
          .avx512_bf16 = isa >= OnednnIsa::avx512_bf16,
          .amx_bf16 = isa == OnednnIsa::amx,
          .level2_bytes = std::int64_t{2} << 20U};
}

constexpr const char* kOnednn = "Intel(R) MKL-DNN v3.10.2 (Git Hash abc)";
const Below kAmx = below(cpu_with(OnednnIsa::amx), "", kOnednn);

std::vector<std::string_view> names(const Below& below) {
  std::vector<std::string_view> all;
  for (const Fault* fault : faults_in_force(below)) all.push_back(fault->name);
  return all;
}

TEST(Faults, AreInForceByInstructionsAndVersion) {
  EXPECT_EQ(kAmx.onednn, (Version{3, 10, 2}));
  EXPECT_THAT(names(kAmx), testing::ElementsAre("oneDNN-6035", "oneDNN-amx-volumes", "pytorch-169688", "oneDNN-bf16-last",
                                                "oneDNN-5494", "pytorch-one-volume"));
  EXPECT_THAT(
      names(below(cpu_with(OnednnIsa::avx512_bf16), "", kOnednn)),
      testing::ElementsAre("oneDNN-6035", "pytorch-169688", "oneDNN-bf16-last", "oneDNN-bf16-short", "pytorch-one-volume"));
  EXPECT_THAT(names(below(cpu_with(OnednnIsa::avx2), "", kOnednn)), testing::ElementsAre("oneDNN-6035", "pytorch-one-volume"));
  EXPECT_THAT(names(below(cpu_with(OnednnIsa::older), "", kOnednn)), testing::IsEmpty());
  EXPECT_THAT(
      names(below(cpu_with(OnednnIsa::amx), "AVX512_CORE_BF16", kOnednn)),
      testing::ElementsAre("oneDNN-6035", "pytorch-169688", "oneDNN-bf16-last", "oneDNN-bf16-short", "pytorch-one-volume"));
  EXPECT_THAT(names(below(cpu_with(OnednnIsa::amx), "avx2", kOnednn)), testing::ElementsAre("oneDNN-6035", "pytorch-one-volume"));
  EXPECT_EQ(names(below(cpu_with(OnednnIsa::amx), "AVX10_1_512_AMX", kOnednn)).size(), 6U);
  EXPECT_EQ(names(below(cpu_with(OnednnIsa::amx), "", "Intel(R) MKL-DNN v3.13.3 (torch 2.15)")), names(kAmx));
  EXPECT_EQ(names(below(cpu_with(OnednnIsa::amx), "", "Intel(R) MKL-DNN v3.14.0 (x)")).size(), 5U) << "oneDNN-5494 is mended";
  EXPECT_EQ(names(below(cpu_with(OnednnIsa::amx), "", "no words of a version")).size(), 6U);
}

TEST(Faults, EachIsNamedOnceAndReported) {
  std::set<std::string_view> seen;
  for (const Fault& fault : known_faults()) {
    EXPECT_TRUE(seen.insert(fault.name).second) << fault.name;
    EXPECT_FALSE(fault.reported.empty() || fault.what.empty()) << fault.name;
  }
}

TEST(Faults, EachStandsInTheDocs) {
  std::ifstream file(MILLRACE_SOURCE_DIR "/docs/known-faults.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (const Fault& fault : known_faults()) EXPECT_THAT(page, testing::HasSubstr("| `" + std::string(fault.name) + "` |"));
}

// The known fault that matches a pass in bf16 with AMX.
std::string_view row_of(const std::vector<std::int64_t>& input, const std::vector<std::int64_t>& weight,
                        const std::vector<std::int64_t>& stride, bool channels_last, Pass pass) {
  const std::vector<std::int64_t> zero{0}, one{1};
  const ConvolutionCall call{.format = at::kBFloat16,
                             .channels_last = channels_last,
                             .input = input,
                             .weight = weight,
                             .stride = stride,
                             .padding = zero,
                             .dilation = one,
                             .output_padding = zero,
                             .isa = OnednnIsa::amx};
  const std::vector<const Fault*> rows = faults_in_force(kAmx);
  const Fault* fault = fault_of(rows, call, pass);
  return fault == nullptr ? "none" : fault->name;
}

TEST(Faults, OneValueForAllDirectionsIsThatOfEach) {
  EXPECT_EQ(row_of({2, 3, 9, 20}, {8, 3, 2, 2}, {3}, false, Pass::forward), "oneDNN-5494");
  EXPECT_EQ(row_of({2, 3, 9, 20}, {8, 3, 2, 2}, {2}, false, Pass::forward), "none");
  EXPECT_EQ(row_of({2, 3, 6, 6, 4}, {8, 3, 3, 3, 3}, {2}, false, Pass::forward), "pytorch-169688");
  EXPECT_EQ(row_of({2, 3, 20}, {8, 3, 2}, {3}, false, Pass::forward), "none");
}

TEST(Faults, OfTwoRowsTheOneThatLeavesBf16GoesBefore) {
  EXPECT_EQ(row_of({4, 8, 9, 2}, {16, 8, 1, 1}, {2, 2}, true, Pass::weight_gradient), "oneDNN-bf16-last");
  EXPECT_EQ(row_of({4, 8, 9, 9}, {16, 8, 1, 1}, {2, 2}, true, Pass::weight_gradient), "oneDNN-6035");
}

// A convolution that matches the known fault `fault`. Its operands depend only on these values.
struct Shape {
  const char* fault;
  std::vector<std::int64_t> input, weight, stride, padding;
  bool channels_last = false;
  at::ScalarType format = at::kBFloat16;
  bool transposed = false;
  const char* also = "";  // another known fault that matches the same shape
};

// The output and the gradients of the convolution.
std::vector<at::Tensor> results(const Shape& shape, at::ScalarType format) {
  const auto filled = [&](const std::vector<std::int64_t>& sizes, double step) {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    at::Tensor values = at::arange(count, at::kFloat).mul(step).sin().reshape(sizes).to(at::kBFloat16).to(format);
    if (shape.channels_last && sizes.size() > 3)
      values = values.contiguous(sizes.size() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast);
    return values;
  };
  const at::Tensor input = filled(shape.input, 0.7).requires_grad_();
  const at::Tensor weight = filled(shape.weight, 1.3).requires_grad_();
  const std::int64_t outputs = shape.transposed ? shape.weight[1] : shape.weight[0];
  const at::Tensor bias = filled({outputs}, 0.4).requires_grad_();
  const std::vector<std::int64_t> ones(shape.stride.size(), 1), zeros(shape.stride.size(), 0);
  const at::Tensor output = at::convolution(input, weight, bias, shape.stride, shape.padding, ones, shape.transposed, zeros, 1);
  const at::Tensor direction =
      at::arange(output.numel(), at::kFloat).mul(0.31).cos().reshape(output.sizes()).to(at::kBFloat16).to(format);
  output.backward(direction);
  return {output.detach(), input.grad(), weight.grad(), bias.grad()};
}

double error(const at::Tensor& value, const at::Tensor& expected) {
  return ((value.to(at::kDouble) - expected.to(at::kDouble)).norm() / expected.to(at::kDouble).norm()).item<double>();
}

class Guard : public testing::TestWithParam<Shape> {};

TEST_P(Guard, GoesAroundTheFaultAndTheValuesAreRight) {
  const Shape& shape = GetParam();
  const auto row = std::ranges::find(known_faults(), std::string_view(shape.fault), &Fault::name);
  ASSERT_NE(row, known_faults().end());
  const ConvolutionGuardForTest guard(below(cpu_with(row->to), "", kOnednn));
  const std::vector<at::Tensor> found = results(shape, shape.format);
  for (const Fault& other : known_faults()) {
    const bool is_expected = other.name == shape.fault || other.name == shape.also;
    EXPECT_EQ(guard.times(other.name), is_expected ? (other.pass ? 1 : 3) : 0) << other.name;
  }
  const std::vector<at::Tensor> expected = results(shape, at::kDouble);
  const double allowed =
      shape.format == at::kFloat ? 1e-5 : 0.05;  // LibTorch rounds more on CPUs without bf16; faults change results by a fifth
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].scalar_type(), shape.format);
    EXPECT_LT(error(found[i], expected[i]), allowed) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Guard,
    testing::Values(
        Shape{"oneDNN-6035", {32, 4, 32, 32}, {8, 4, 1, 1}, {2, 2}, {0, 0}, true, at::kFloat},
        Shape{"oneDNN-6035", {4, 3, 9, 9}, {16, 3, 1, 1}, {2, 2}, {0, 0}, true},
        Shape{"oneDNN-amx-volumes", {2, 1, 3, 1026, 3}, {1, 1, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        Shape{"oneDNN-amx-volumes", {2, 2, 14, 1026, 6}, {8, 2, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
        Shape{"oneDNN-amx-volumes", {1, 32, 3, 59, 65}, {20, 32, 3, 3, 3}, {1, 1, 1}, {0, 1, 1}},
        Shape{"oneDNN-amx-volumes", {1, 32, 3, 64, 63}, {20, 32, 3, 3, 3}, {1, 1, 1}, {0, 1, 1}, true},
        Shape{"oneDNN-amx-volumes", {1, 17, 3, 64, 64}, {20, 17, 3, 3, 3}, {1, 1, 1}, {0, 1, 1}, true},
        Shape{"oneDNN-amx-volumes", {2, 4, 4, 700, 4}, {8, 4, 3, 3, 3}, {2, 2, 2}, {1, 1, 1}, true},
        Shape{"oneDNN-amx-volumes", {1, 8, 1, 512, 128}, {20, 8, 1, 3, 1}, {1, 1, 1}, {0, 1, 0}},
        Shape{"oneDNN-amx-volumes", {1, 20, 2, 300, 8}, {20, 8, 2, 2, 2}, {2, 2, 2}, {0, 0, 0}, false, at::kBFloat16, true},
        Shape{"oneDNN-amx-volumes", {2, 4, 2, 600, 4}, {8, 4, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, false, at::kHalf},
        Shape{"oneDNN-bf16-last",
              {3, 8, 9, 18, 2},
              {11, 8, 4, 3, 2},
              {2, 2, 4},
              {1, 1, 1},
              true,
              at::kBFloat16,
              false,
              "pytorch-169688"},
        Shape{"oneDNN-bf16-last", {2, 16, 12, 1}, {2, 16, 4, 2}, {2, 2}, {0, 1}, false, at::kBFloat16, false, "pytorch-169688"},
        Shape{"oneDNN-bf16-last", {4, 8, 9, 2}, {16, 8, 1, 1}, {2, 2}, {0, 0}, true, at::kBFloat16, false, "pytorch-169688"},
        Shape{"pytorch-169688",
              {2, 3, 6, 6, 3},
              {8, 3, 3, 3, 3},
              {1, 1, 3},
              {1, 1, 0},
              false,
              at::kBFloat16,
              false,
              "oneDNN-bf16-last"},
        Shape{"oneDNN-5494", {2, 3, 9, 20}, {8, 3, 2, 2}, {3, 1}, {0, 0}},
        Shape{"oneDNN-bf16-short", {1, 32, 3, 3, 3}, {1, 32, 4, 4, 4}, {1, 1, 1}, {1, 1, 1}},
        Shape{"oneDNN-bf16-short", {2, 16, 2, 5, 8}, {8, 16, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, true},
        Shape{"pytorch-one-volume", {1, 32, 9, 16, 11}, {16, 32, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, false, at::kFloat},
        Shape{"pytorch-one-volume", {1, 32, 17, 17, 17}, {48, 32, 3, 3, 3}, {2, 2, 2}, {0, 0, 0}, true, at::kFloat}),
    [](const auto& shape_info) {
      std::string name = shape_info.param.fault + std::to_string(shape_info.index);
      std::erase(name, '-');
      return name;
    });

// Shapes with right and with wrong results on AMX (docs/known-faults.md). With the workarounds for this CPU, all results must
// be right.
TEST(Guard, VolumesAreRightOnThisCpu) {
  (void)guard_convolutions();
  std::vector<Shape> shapes;
  const auto volume = [&](std::vector<std::int64_t> input, std::int64_t outputs, std::vector<std::int64_t> padding = {1, 1, 1},
                          std::vector<std::int64_t> stride = {1, 1, 1}, std::vector<std::int64_t> kernel = {3, 3, 3}) {
    const std::int64_t inputs = input[1];
    shapes.push_back(
        {"", std::move(input), {outputs, inputs, kernel[0], kernel[1], kernel[2]}, std::move(stride), std::move(padding)});
  };
  const std::vector<std::int64_t> flat = {0, 1, 1}, two = {2, 2, 2};
  for (const std::int64_t height : {58, 59, 128}) volume({1, 32, 3, height, 65}, 20, flat);
  for (const std::int64_t width : {62, 63, 254}) volume({1, 32, 3, 64, width}, 20, flat);
  for (const std::int64_t channels : {16, 17}) volume({1, channels, 3, 64, 64}, 20, flat);
  for (const std::int64_t planes : {1, 3, 8}) volume({1, 32, planes, 128, 65}, 20);
  for (const std::int64_t samples : {1, 2}) volume({samples, 16, 2, 128, 64}, 16);
  volume({1, 64, 3, 64, 64}, 64, flat);
  volume({1, 8, 1, 512, 128}, 20);
  volume({2, 1, 3, 1026, 3}, 1);
  volume({2, 2, 14, 1026, 6}, 8);
  volume({1, 32, 3, 256, 129}, 20, {1, 1, 1}, two);
  volume({1, 32, 1, 128, 65}, 20, {0, 0, 0}, {1, 1, 1}, {1, 1, 1});
  volume({1, 16, 20, 32, 33}, 20);
  shapes.push_back({"", {1, 20, 1, 128, 65}, {20, 32, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, false, at::kBFloat16, true});
  shapes.push_back({"", {1, 32, 2, 128, 64}, {32, 20, 3, 3, 3}, {1, 2, 2}, {1, 1, 1}, false, at::kBFloat16, true});
  for (std::size_t n = 0; n < shapes.size(); ++n) {
    Shape& shape = shapes[n];
    shape.channels_last = n % 2 == 1;  // the fault does not depend on the layout
    const std::vector<at::Tensor> found = results(shape, at::kBFloat16), expected = results(shape, at::kFloat);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LT(error(found[i], expected[i]), 0.05) << at::IntArrayRef(shape.input) << at::IntArrayRef(shape.weight) << i;
  }
}

TEST(Guard, LeavesOtherConvolutionsAlone) {
  const ConvolutionGuardForTest guard(kAmx);
  (void)results({"", {1, 16, 4, 64, 48}, {16, 16, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, at::kBFloat16);
  (void)results({"", {2, 1, 3, 1026, 3}, {1, 1, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, at::kFloat);
  (void)results({"", {1, 32, 3, 58, 65}, {20, 32, 3, 3, 3}, {1, 1, 1}, {0, 1, 1}}, at::kBFloat16);
  (void)results({"", {1, 32, 32, 32, 8}, {16, 32, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, at::kFloat);
  (void)results({"", {2, 32, 9, 16, 11}, {16, 32, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}}, at::kFloat);
  (void)results({"", {4, 16, 8, 8}, {8, 16, 1, 1}, {2, 2}, {0, 0}, true}, at::kFloat);
  (void)results({"", {4, 3, 8, 8}, {8, 3, 1, 1}, {2, 2}, {0, 0}}, at::kFloat);
  (void)results({"", {4, 3, 20}, {8, 3, 5}, {2}, {1}}, at::kBFloat16);
  for (const Fault& fault : known_faults()) EXPECT_EQ(guard.times(fault.name), 0) << fault.name;
}

TEST(Guard, WhatAtenWouldRefuseIsForAtenToRefuse) {
  const ConvolutionGuardForTest guard(kAmx);
  const at::Tensor x = at::ones({1, 3, 8, 8}).to(at::kBFloat16), weight = at::ones({4, 3, 3, 3}).to(at::kBFloat16);
  const std::vector<std::int64_t> none, ones{1, 1}, zeros{0, 0}, three{1, 1, 1};
  for (const std::vector<std::int64_t>& stride : {none, zeros, three})
    EXPECT_THROW((void)at::convolution(x, weight, {}, stride, zeros, ones, false, zeros, 1), c10::Error);
  EXPECT_THROW((void)at::convolution(x, weight, {}, ones, three, ones, false, zeros, 1), c10::Error);
}

TEST(Guard, WhatATrialFoundGoesBeforeARowThatKeepsBf16) {
  const ConvolutionGuardForTest guard(kAmx);
  const ConvolutionShape found{false, {4, 3, 9, 9}, {16, 3, 1, 1}, {2, 2}, {0, 0}, {1, 1}, {0, 0}, 1};
  guard_also({{found, Pass::weight_gradient, "wrong"}});
  (void)results({"", found.input, found.weight, found.stride, found.padding, true}, at::kBFloat16);
  EXPECT_EQ(guard.times("found here"), 1);
  EXPECT_EQ(guard.times("oneDNN-6035"), 0);
}

TEST(Guard, ResultsHaveTheLayoutThatTheyWouldHaveHad) {
  const ConvolutionGuardForTest guard(kAmx);
  const ConvolutionShape shape{false, {4, 8, 9, 9}, {16, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 1};
  guard_also({{shape, Pass::forward, "wrong"}, {shape, Pass::input_gradient, "wrong"}});
  const auto of = [&](at::MemoryFormat input_layout, at::MemoryFormat weight_layout) {
    const at::Tensor input = at::ones(shape.input, at::kBFloat16).contiguous(input_layout);
    const at::Tensor weight = at::ones(shape.weight, at::kBFloat16).contiguous(weight_layout);
    const at::Tensor output = at::convolution(input, weight, {}, shape.stride, shape.padding, shape.dilation, false,
                                              shape.output_padding, shape.groups);
    const at::Tensor gradient =
        std::get<0>(at::convolution_backward(output, input, weight, at::OptionalIntArrayRef(), shape.stride, shape.padding,
                                             shape.dilation, false, shape.output_padding, shape.groups, {true, false, false}));
    EXPECT_EQ(gradient.suggest_memory_format(), output.suggest_memory_format());
    return output.suggest_memory_format();
  };
  constexpr auto kLast = at::MemoryFormat::ChannelsLast, kFirst = at::MemoryFormat::Contiguous;
  EXPECT_EQ(of(kLast, kFirst), kLast);
  EXPECT_EQ(of(kFirst, kLast), kLast);
  EXPECT_EQ(of(kFirst, kFirst), kFirst);
  EXPECT_EQ(guard.times("found here"), 6);
}

TEST(Guard, StandsUnderAutocastToo) {
  const ConvolutionGuardForTest guard(kAmx);
  const Autocast autocast(c10::DeviceType::CPU, at::kBFloat16);
  const at::Tensor input = at::ones({2, 3, 6, 6, 3});
  const at::Tensor output = at::conv3d(input, at::ones({4, 3, 3, 3, 3}), {}, {1, 1, 3}, {1, 1, 0});
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  EXPECT_EQ(guard.times("pytorch-169688"), 1);
  EXPECT_EQ(output.max().item<float>(), 81);
}

std::vector<std::string> notices;
TEST(Guard, TellsItsWatcher) {
  const ConvolutionGuardForTest guard(kAmx);
  notices.clear();
  set_convolution_watcher([](const char* operation, const ConvolutionCall& call) noexcept {
    notices.push_back(std::string(operation) + " " + std::to_string(call.weight[0]));
  });
  (void)results({"", {1, 2, 5, 5}, {3, 2, 3, 3}, {1, 1}, {0, 0}}, at::kFloat);
  set_convolution_watcher(nullptr);
  EXPECT_THAT(notices, testing::ElementsAre("aten::convolution 3", "aten::convolution_backward 3"));
}

}  // namespace
}  // namespace millrace::device
