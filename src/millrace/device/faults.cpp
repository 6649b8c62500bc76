#include "millrace/device/faults.h"

#include <ATen/Version.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "millrace/device/detail/turned_rows.h"

namespace millrace::device {
namespace {

constexpr Version kNone = {};

bool is_volume(const ConvolutionCall& call) { return call.input.size() == 5; }

// The value for one direction. ATen also accepts one value for all directions.
std::int64_t in_direction(at::IntArrayRef values, std::size_t i) { return values.size() == 1 ? values[0] : values[i]; }

// True if oneDNN may write beyond its buffers for this volume in bf16 or fp16. fp16 uses bf16's code if the CPU has amx_fp16. On
// other CPUs with AMX, fp16 is right but slow in both layouts.
bool is_cut_volume(const ConvolutionCall& call) {
  const bool is_narrow = call.format == at::kBFloat16 || call.format == at::kHalf;
  return is_narrow && is_volume(call) && detail::rows_may_overrun(call);
}

// True if the innermost direction has a stride above 1 and an output of size 1. For a transposed convolution, judges the
// convolution that it transposes.
bool ends_in_one_strided(const ConvolutionCall& call) {
  const std::size_t last = call.input.size() - 3;
  const std::int64_t size = call.transposed ? call.input.back() : output_size(call, last);
  return call.input.size() > 3 && call.stride.back() > 1 && size == 1;
}

bool ends_in_one_strided_forward(const ConvolutionCall& call) { return !call.transposed && ends_in_one_strided(call); }

bool is_point(const ConvolutionCall& call) {
  return std::ranges::all_of(call.weight.slice(2), [](std::int64_t size) { return size == 1; });
}

bool steps_over_input(const ConvolutionCall& call) {
  if (call.transposed || is_point(call)) return false;        // pointwise convolutions use other code
  for (std::size_t i = 0; i + 3 < call.weight.size(); ++i) {  // each direction except the innermost
    if (in_direction(call.stride, i) > call.weight[i + 2]) return true;
  }
  return false;
}

// True if a strided pointwise convolution has fewer input channels than oneDNN handles at a time: 8 with AVX2, 16 with later
// sets.
bool is_strided_point_of_few_channels(const ConvolutionCall& call) {
  const std::int64_t block = call.isa >= OnednnIsa::avx512 ? 16 : 8;
  const bool is_strided = std::ranges::any_of(call.stride, [](std::int64_t step) { return step > 1; });
  return call.channels_last && is_point(call) && is_strided && call.weight[1] < block;
}

// True if the kernel is longer than the volume in a direction. For a transposed convolution, judges the convolution that it
// transposes. 2,600 random shapes were tried. If such a kernel had size 3 or more and there was padding, every result was wrong,
// at any stride and in both layouts. Other kernels and two-dimensional convolutions gave no wrong result.
bool is_kernel_longer_than_volume(const ConvolutionCall& call) {
  if (!is_volume(call)) return false;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t size = call.transposed ? output_size(call, i) : call.input[i + 2];
    if (call.weight[i + 2] > size) return true;
  }
  return false;
}

// True if ATen computes the call in its own loop, which copies each kernel's neighbourhood, and oneDNN would be faster. ATen
// uses oneDNN for calls that it considers large: more than one sample, more than 20,480 elements without the last axis, or a
// kernel larger than 3 along both of the last two axes. Below kWorthwhile multiplications, the reordering for oneDNN costs as
// much as oneDNN saves.
bool is_one_small_volume(const ConvolutionCall& call) {
  constexpr std::int64_t kCountsAsLarge = 20480, kWorthwhile = 4'000'000;
  if (!is_volume(call) || call.transposed || call.groups != 1 || call.input[0] != 1 || is_point(call)) return false;
  if (call.weight[4] > 3 && call.weight[3] > 3) return false;
  if (call.input[1] * call.input[2] * call.input[3] > kCountsAsLarge) return false;
  std::int64_t work = 1;
  for (const std::int64_t size : call.weight) work *= size;
  for (std::size_t i = 0; i < 3; ++i) work *= output_size(call, i);
  return work >= kWorthwhile;
}

constexpr std::array kFaults = {
    Fault{"oneDNN-6035", "uxlfoundation/oneDNN #6035",
          "weight gradients of channels-last 1x1 convolutions with a stride and few channels: written beyond their memory",
          OnednnIsa::avx2, OnednnIsa::amx, kNone, std::nullopt, Pass::weight_gradient, &is_strided_point_of_few_channels,
          Instead::contiguous},
    Fault{
        "oneDNN-amx-volumes", "oneDNN 2.7 and later, not reported yet",
        "16-bit weight gradients of 3-D convolutions that oneDNN computes in blocks of rows: written beyond their memory, wrong, "
        "or never finished",
        OnednnIsa::amx, OnednnIsa::amx, kNone, std::nullopt, Pass::weight_gradient, &is_cut_volume, Instead::planes},
    Fault{"pytorch-169688", "pytorch/pytorch #169688, #188426",
          "bf16 convolutions with a stride and an innermost output size of 1: wrong values", OnednnIsa::avx512, OnednnIsa::amx,
          kNone, at::kBFloat16, Pass::forward, &ends_in_one_strided_forward, Instead::fp32},
    Fault{"oneDNN-bf16-last", "seen with oneDNN 3.10.2 and 3.13.3, not reported yet",
          "bf16 weight gradients of convolutions with a stride and an innermost output size of 1: garbage", OnednnIsa::avx512,
          OnednnIsa::amx, kNone, at::kBFloat16, Pass::weight_gradient, &ends_in_one_strided, Instead::fp32},
    Fault{"oneDNN-5494",
          "uxlfoundation/oneDNN #5494, #5568",
          "bf16 convolutions with a stride larger than their kernel: wrong values",
          OnednnIsa::amx,
          OnednnIsa::amx,
          {3, 14, 0},
          at::kBFloat16,
          Pass::forward,
          &steps_over_input,
          Instead::fp32},
    Fault{"oneDNN-bf16-short", "seen with oneDNN 3.10.2 and 3.13.3, not reported yet",
          "bf16 weight gradients of 3-D convolutions whose kernel is longer than the volume: garbage, different each time",
          OnednnIsa::avx512, OnednnIsa::avx512_bf16, kNone, at::kBFloat16, Pass::weight_gradient, &is_kernel_longer_than_volume,
          Instead::fp32},
    Fault{"pytorch-one-volume", "seen with PyTorch 2.11 and 2.15, not reported yet",
          "fp32 convolutions of one small volume: PyTorch uses its own loop, two to five times slower than oneDNN",
          OnednnIsa::avx2, OnednnIsa::amx, kNone, at::kFloat, std::nullopt, &is_one_small_volume, Instead::onednn},
};

struct Word {
  std::string_view word;
  OnednnIsa isa;
};
// oneDNN's names of instruction sets, as in the variable ONEDNN_MAX_CPU_ISA. A value of the variable that is not in this list
// is ignored.
constexpr std::array kWords = {Word{"SSE41", OnednnIsa::older},
                               Word{"AVX", OnednnIsa::older},
                               Word{"AVX2", OnednnIsa::avx2},
                               Word{"AVX2_VNNI", OnednnIsa::avx2},
                               Word{"AVX2_VNNI_2", OnednnIsa::avx2},
                               Word{"AVX512_CORE", OnednnIsa::avx512},
                               Word{"AVX512_CORE_VNNI", OnednnIsa::avx512},
                               Word{"AVX512_CORE_BF16", OnednnIsa::avx512_bf16},
                               Word{"AVX512_CORE_FP16", OnednnIsa::avx512_bf16},
                               Word{"AVX10_1_512", OnednnIsa::avx512_bf16}};

OnednnIsa isa_of(const Cpu& cpu) {
  if (!cpu.avx2) return OnednnIsa::older;
  if (!cpu.avx512) return OnednnIsa::avx2;
  if (cpu.amx_bf16) return OnednnIsa::amx;
  return cpu.avx512_bf16 ? OnednnIsa::avx512_bf16 : OnednnIsa::avx512;
}

Version version_in(std::string_view text) {
  Version version{};
  const std::size_t at = text.find(" v");
  if (at == std::string_view::npos) return version;
  std::string numbers(text.substr(at + 2, 24));
  (void)std::sscanf(numbers.c_str(), "%d.%d.%d", &version[0], &version[1], &version[2]);
  return version;
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

}  // namespace

Below below(const Cpu& cpu, std::string_view limit, std::string_view onednn_text) {
  Below below{isa_of(cpu), version_in(onednn_text), cpu.level2_bytes};
  std::string upper(limit);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c); });
  for (const Word& word : kWords) {
    if (word.word == upper) below.isa = std::min(below.isa, word.isa);
  }
  return below;
}

const Below& below() {
  static const Below here = [] {
    const std::string_view limit = environment("ONEDNN_MAX_CPU_ISA");
    return below(cpu_info(), limit.empty() ? environment("DNNL_MAX_CPU_ISA") : limit, at::get_mkldnn_version());
  }();
  return here;
}

std::int64_t output_size(const ConvolutionCall& call, std::size_t i) {
  const std::int64_t input = call.input[i + 2];
  const auto at = [i](at::IntArrayRef values) { return in_direction(values, i); };
  const std::int64_t extent = at(call.dilation) * (call.weight[i + 2] - 1) + 1;
  if (call.transposed) return (input - 1) * at(call.stride) - 2 * at(call.padding) + extent;
  return (input + 2 * at(call.padding) - extent) / at(call.stride) + 1;
}

std::span<const Fault> known_faults() { return kFaults; }

std::vector<const Fault*> faults_in_force(const Below& below) {
  std::vector<const Fault*> rows;
  for (const Fault& fault : kFaults) {
    const bool is_fixed = fault.fixed_in != kNone && below.onednn >= fault.fixed_in;
    if (below.isa >= fault.from && below.isa <= fault.to && !is_fixed) rows.push_back(&fault);
  }
  return rows;
}

const Fault* fault_of(std::span<const Fault* const> faults, const ConvolutionCall& call, Pass pass) {
  const Fault* first = nullptr;
  for (const Fault* fault : faults) {
    const bool is_met =
        fault->pass.value_or(pass) == pass && (!fault->format || *fault->format == call.format) && fault->hits(call);
    if (is_met && (first == nullptr || fault->instead < first->instead)) first = fault;
  }
  return first;
}

}  // namespace millrace::device
