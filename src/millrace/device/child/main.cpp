// The program millrace-convolutions computes bf16 convolutions that may hang, crash or write outside their memory. The program
// is separate so that such faults can't harm the run (device/convolution_trial.h). device/detail/convolution_job.h describes the
// job and the answers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/device/child/watched_memory.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/detail/convolution_job.h"
#include "millrace/device/device.h"
#include "millrace/device/preflight.h"

namespace millrace::device {
namespace {

using detail::ConvolutionJob;
using detail::Unit;

constexpr double kTolerance = 0.05;  // limit for norm(error) / norm(result), which is 0.004 for bf16 and 0.012 for emulated bf16
// Limit for an element's error, divided by the sum of the element's magnitude and the root mean square of all elements. bf16 is
// off by 0.004, emulated bf16 by 0.06.
constexpr double kElementTolerance = 0.25;
// A pass is tried several times within this time, because a fault may not show at the first try. The tries fill memory with
// different junk: NaN, large numbers, zeros.
constexpr double kTriesMs = 100;
struct Amid {
  unsigned char junk;
  std::size_t zone_bytes;
};
constexpr std::array kTries = {Amid{0xFF, 64 << 10}, Amid{0x4B, 4 << 10}, Amid{0x00, 256 << 10}, Amid{0xFF, 4 << 10},
                               Amid{0x4B, 1 << 10}};
constexpr std::size_t kLeastTries = 3;
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
      return at::randn(sizes).to(at::kBFloat16).to(at::kFloat);  // rounded to bf16, so that fp32 gets the same numbers
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

  struct Verdict {
    std::string fault;        // "" = the pass is right
    bool is_damaged = false;  // the pass wrote outside its memory, so this process must not continue
  };
  // Tries a pass in bf16 and returns the verdict.
  [[nodiscard]] Verdict try_pass(const Unit& unit) const {
    const double began = milliseconds();
    for (std::size_t i = 0; i < kTries.size() && (i < kLeastTries || milliseconds() - began < kTriesMs); ++i) {
      if (Verdict verdict = try_once(unit, kTries[i]); !verdict.fault.empty()) return verdict;
    }
    return {};
  }

 private:
  [[nodiscard]] Verdict try_once(const Unit& unit, const Amid& amid) const {
    std::vector<at::Tensor> found;
    {
      const WatchedMemory memory(amid.junk, amid.zone_bytes);
      const at::Tensor input = laid_out(input_, unit), weight = laid_out(weight_, unit), bias = laid_out(bias_, unit);
      const at::Tensor direction = laid_out(direction_, unit);
      found =
          unit.pass == Pass::forward ? std::vector{forward(input, weight, bias)} : backward(unit.pass, direction, input, weight);
      if (std::string overrun = memory.overrun(); !overrun.empty()) return {std::move(overrun), true};
    }
    const std::vector<at::Tensor>& expected = expected_[static_cast<std::size_t>(unit.pass)];
    for (std::size_t part = 0; part < expected.size(); ++part) {
      if (std::string fault = difference(found[part], expected[part]); !fault.empty())
        return {(part == 0 ? "" : "bias: ") + fault, false};
    }
    return {};
  }
  // Describes how the two tensors differ, in total or in an element; "" if they are practically equal.
  [[nodiscard]] static std::string difference(const at::Tensor& found, const at::Tensor& expected) {
    if (expected.numel() == 0) return "";
    const double size = expected.norm().item<double>();
    at::Tensor offs = found.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).sub_(expected);
    const double off = offs.norm().item<double>();
    if (!std::isfinite(off)) return "not finite";
    if (off > kTolerance * size) return "off by " + rounded(size == 0 ? off : off / size) + " of its size";
    if (off == 0) return "";
    const double usual = size / std::sqrt(static_cast<double>(expected.numel()));
    const double farthest = offs.abs_().div_(expected.abs().add_(usual)).max().item<double>();
    return farthest > kElementTolerance ? "an element is off by " + rounded(farthest) + " of its size" : "";
  }
  [[nodiscard]] static std::string rounded(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2g", value);
    return text;
  }
  [[nodiscard]] static at::Tensor laid_out(const at::Tensor& tensor, const Unit& unit) {
    const auto last = tensor.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
    // A copy in watched memory, so that reads beyond its borders are also noticed.
    const at::Tensor narrow = tensor.to(at::kBFloat16);
    return unit.channels_last && tensor.dim() > 3 ? narrow.contiguous(last) : narrow;
  }
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
    return at::convolution(input, weight, bias, shape_.stride, shape_.padding, shape_.dilation, shape_.transposed,
                           shape_.output_padding, shape_.groups);
  }
  // Returns the gradient of the input, or the gradients of weight and bias, as `pass` requests.
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
  std::array<std::vector<at::Tensor>, 3> expected_;  // one list for each pass
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
      const auto [fault, is_damaged] = reference->try_pass(unit);
      std::cout << (fault.empty() ? "right " : "wrong ") << i << (fault.empty() ? "" : " " + fault) << std::endl;
      if (is_damaged) std::_Exit(0);
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
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a convolution that hangs must not outlive the run
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  try {
    millrace::device::stand_back_for_memory();
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const millrace::device::detail::ConvolutionJob job = millrace::device::detail::job_in(millrace::Json::parse(text));
    millrace::device::set_threads(job.threads);
    millrace::device::work(job);
    std::_Exit(0);  // each answer was flushed; LibTorch's destructors take 0.1 s and free only memory
  } catch (const std::exception& error) {
    std::cout << "untried 0 " << error.what() << std::endl;
    return 1;
  }
}
