// Known faults of the libraries below us, wrong values and slow ways: which calls are hit, and what is done instead.
// docs/decisions/0039 says how they were found.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/device/device.h"

namespace millrace::device {

// The instructions that oneDNN's code is made of, each with those before it.
enum class OnednnIsa : std::uint8_t { older, avx2, avx512, avx512_bf16, amx };
using Version = std::array<int, 3>;

// What computes here.
struct Below {
  OnednnIsa isa = OnednnIsa::older;
  Version onednn = {};
  std::int64_t level2_bytes = 0;  // of a core's cache; 0: the CPU does not say it
};
// By what the CPU has, lowered by ONEDNN_MAX_CPU_ISA (`limit`; "" = not set).
[[nodiscard]] Below below(const Cpu& cpu, std::string_view limit, std::string_view onednn_text);
[[nodiscard]] const Below& below();  // of this process

enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };
enum class Instead : std::uint8_t {  // of several the first goes around the faults of the others too
  fp32,    // computed in fp32 from the operands' values out of channels-last, the result in their format and layout
  planes,  // a volume's weight gradient by convolutions in two directions, each behind the guard (kernels/convolution_weights.h)
  contiguous,  // operands copied out of channels-last
  onednn       // by oneDNN, which ATen would have passed over
};

// One convolution as ATen is asked for it. A transposed one has the weight of the convolution that it turns around.
struct ConvolutionCall {
  at::ScalarType format = at::kFloat;
  bool channels_last = false;  // the input or the weight
  bool transposed = false;
  at::IntArrayRef input, weight, stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  OnednnIsa isa = OnednnIsa::older;
  std::int64_t level2_bytes = 0;  // as in Below
};
// Of one direction in space (0 = the outermost).
[[nodiscard]] std::int64_t output_size(const ConvolutionCall& call, std::size_t direction);

struct Fault {
  std::string_view name;                 // for plans: where it was reported, short
  std::string_view reported;             // in full
  std::string_view what;                 // happens
  OnednnIsa from, to;                    // instructions that have it, both included
  Version fixed_in;                      // first version without it; all zero: none yet
  std::optional<at::ScalarType> format;  // nullopt: any
  std::optional<Pass> pass;              // nullopt: each
  bool (*hits)(const ConvolutionCall& call);
  Instead instead;
};

[[nodiscard]] std::span<const Fault> known_faults();
[[nodiscard]] std::vector<const Fault*> faults_in_force(const Below& below);
// What `faults` say of a pass of this call; nullptr: nothing. Of several that it meets the one whose way around stands first in
// Instead, of those with the same way the first.
[[nodiscard]] const Fault* fault_of(std::span<const Fault* const> faults, const ConvolutionCall& call, Pass pass);

}  // namespace millrace::device
