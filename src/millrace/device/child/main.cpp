// millrace-convolutions: computes convolutions in bf16 that may never end or crash, so that the run that asks does not
// (device/convolution_trial.h). The job and the answers: device/detail/convolution_job.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/device/convolution_guard.h"
#include "millrace/device/detail/convolution_job.h"
#include "millrace/device/device.h"
#include "millrace/device/limits.h"

namespace millrace::device {
namespace {

using detail::ConvolutionJob;
using detail::Unit;

constexpr double kTolerance = 0.05;  // bf16 itself is off by 0.004
constexpr double kTriesMs = 100;     // a fault need not show at the first try: as many as fit, of these
constexpr int kLeastTries = 2, kMostTries = 5;
constexpr double kOutOfProportion = 100, kGraceMs = 2000;

double milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// A shape's operands, and its results in fp32.
class Reference {
 public:
  explicit Reference(const ConvolutionShape& shape) : shape_(shape) {
    const auto noise = [](const std::vector<std::int64_t>& sizes) {
      return at::randn(sizes).to(at::kBFloat16).to(at::kFloat);  // the same numbers in each format
    };
    input_ = noise(shape.input);
    weight_ = noise(shape.weight);
    bias_ = noise({shape.transposed ? shape.weight[1] * shape.groups : shape.weight[0]});
    const double began = milliseconds();
    expected_[0] = {forward(input_, weight_, bias_)};
    direction_ = noise(expected_[0][0].sizes().vec());
    for (const Pass pass : {Pass::input_gradient, Pass::weight_gradient})
      expected_[static_cast<std::size_t>(pass)] = backward(pass, direction_, input_, weight_);
    ms_ = milliseconds() - began;
  }
  [[nodiscard]] const ConvolutionShape& shape() const noexcept { return shape_; }
  [[nodiscard]] double ms() const noexcept { return ms_; }

  // What is wrong with a pass in bf16; "" = nothing.
  [[nodiscard]] std::string fault_of(const Unit& unit) const {
    const at::Tensor input = laid_out(input_, unit), weight = laid_out(weight_, unit), bias = bias_.to(at::kBFloat16);
    const at::Tensor direction = laid_out(direction_, unit);
    const std::vector<at::Tensor>& expected = expected_[static_cast<std::size_t>(unit.pass)];
    const double began = milliseconds();
    for (int i = 0; i < kMostTries && (i < kLeastTries || milliseconds() - began < kTriesMs); ++i) {
      const std::vector<at::Tensor> found =
          unit.pass == Pass::forward ? std::vector{forward(input, weight, bias)} : backward(unit.pass, direction, input, weight);
      for (std::size_t part = 0; part < expected.size(); ++part) {
        if (std::string fault = difference(found[part], expected[part]); !fault.empty())
          return (part == 0 ? "" : "bias: ") + fault;
      }
    }
    return "";
  }

 private:
  // "" = as good as equal.
  [[nodiscard]] static std::string difference(const at::Tensor& found, const at::Tensor& expected) {
    const double size = expected.norm().item<double>();
    const double off = (found.to(at::kFloat) - expected).norm().item<double>();
    if (!std::isfinite(off)) return "not finite";
    if (off <= kTolerance * size) return "";
    char text[64];
    std::snprintf(text, sizeof text, "%.2g of its size off", size == 0 ? off : off / size);
    return text;
  }
  [[nodiscard]] static at::Tensor laid_out(const at::Tensor& tensor, const Unit& unit) {
    const auto last = tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
    const at::Tensor narrow = tensor.to(at::kBFloat16);
    return unit.channels_last && tensor.dim() > 3 ? narrow.contiguous(last) : narrow;
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
    return at::convolution(input, weight, bias, shape_.stride, shape_.padding, shape_.dilation, shape_.transposed,
                           shape_.output_padding, shape_.groups);
  }
  // The input's gradient, or the weight's and the bias's.
  [[nodiscard]] std::vector<at::Tensor> backward(Pass pass, const at::Tensor& direction, const at::Tensor& input,
                                                 const at::Tensor& weight) const {
    const bool of_input = pass == Pass::input_gradient;
    const auto all =
        at::convolution_backward(direction, input, weight, bias_.sizes(), shape_.stride, shape_.padding, shape_.dilation,
                                 shape_.transposed, shape_.output_padding, shape_.groups, {of_input, !of_input, !of_input});
    return of_input ? std::vector{std::get<0>(all)} : std::vector{std::get<1>(all), std::get<2>(all)};
  }

  ConvolutionShape shape_;
  at::Tensor input_, weight_, bias_, direction_;
  std::array<std::vector<at::Tensor>, 3> expected_;  // of each pass
  double ms_ = 0;
};

void work(const ConvolutionJob& job) {
  std::optional<Reference> reference;
  for (std::size_t i = 0; i < job.units.size(); ++i) {
    const Unit& unit = job.units[i];
    try {
      if (!reference || reference->shape() != unit.shape) {
        reference.reset();
        reference.emplace(unit.shape);
      }
      const double limit_ms = kGraceMs + kOutOfProportion * reference->ms() * job.threads;
      std::cout << "begin " << i << " " << static_cast<std::int64_t>(limit_ms) << std::endl;
      const std::string fault = reference->fault_of(unit);
      std::cout << (fault.empty() ? "right " : "wrong ") << i << (fault.empty() ? "" : " " + fault) << std::endl;
    } catch (const std::exception& error) {
      reference.reset();
      const std::string text = error.what();
      std::cout << "untried " << i << " " << text.substr(0, std::min<std::size_t>(text.find('\n'), 120)) << std::endl;
    }
  }
}

}  // namespace
}  // namespace millrace::device

int main() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a convolution that never ends must not outlive its run
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    millrace::device::stand_back_for_memory();
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const millrace::device::detail::ConvolutionJob job = millrace::device::detail::job_in(millrace::Json::parse(text));
    millrace::device::set_threads(job.threads);
    millrace::device::work(job);
    return 0;
  } catch (const std::exception& error) {
    std::cout << "untried 0 " << error.what() << std::endl;
    return 1;
  }
}
