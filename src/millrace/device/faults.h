// Known faults of the libraries below us, wrong values and slow implementations: the affected calls, and the workarounds.
// docs/decisions/0039 describes how they were found.
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

// The instruction sets of oneDNN's code, each including those before it.
enum class OnednnIsa : std::uint8_t { older, avx2, avx512, avx512_bf16, amx };
using Version = std::array<int, 3>;

// The libraries and CPU that compute here.
struct Below {
  OnednnIsa isa = OnednnIsa::older;
  Version onednn = {};
  std::int64_t level2_bytes = 0;  // size of a core's level 2 cache; 0: the CPU does not report it
};
// The CPU's instruction set, lowered by ONEDNN_MAX_CPU_ISA (`limit`; "" = not set).
[[nodiscard]] Below below(const Cpu& cpu, std::string_view limit, std::string_view onednn_text);
[[nodiscard]] const Below& below();  // of this process

enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };
enum class Instead : std::uint8_t {  // in order of preference: the first also avoids the faults of the others
  fp32,    // computed in fp32 from the operands' values, not channels-last; the result gets their format and layout
  planes,  // a volume's weight gradient by convolutions in two directions, each behind the guard (kernels/convolution_weights.h)
  contiguous,  // operands copied out of channels-last
  onednn       // by oneDNN, which ATen would not have used
};

// One convolution as ATen is called. A transposed one has the weight of the convolution that it transposes.
struct ConvolutionCall {
  at::ScalarType format = at::kFloat;
  bool channels_last = false;  // the input or the weight
  bool transposed = false;
  at::IntArrayRef input, weight, stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  OnednnIsa isa = OnednnIsa::older;
  std::int64_t level2_bytes = 0;  // as in Below
};
// The output size along one direction in space (0 = the outermost).
[[nodiscard]] std::int64_t output_size(const ConvolutionCall& call, std::size_t direction);

struct Fault {
  std::string_view name;                 // for plans: where it was reported, short form
  std::string_view reported;             // where it was reported, full form
  std::string_view what;                 // effect of the fault
  OnednnIsa from, to;                    // instruction sets that have it, both included
  Version fixed_in;                      // first version without it; all zero: not fixed yet
  std::optional<at::ScalarType> format;  // nullopt: any
  std::optional<Pass> pass;              // nullopt: each
  bool (*hits)(const ConvolutionCall& call);
  Instead instead;
};

[[nodiscard]] std::span<const Fault> known_faults();
[[nodiscard]] std::vector<const Fault*> faults_in_force(const Below& below);
// The fault in `faults` that matches a pass of this call. If several match, the one whose workaround is first in Instead, and
// among equal workarounds the first; nullptr if no fault matches.
[[nodiscard]] const Fault* fault_of(std::span<const Fault* const> faults, const ConvolutionCall& call, Pass pass);

}  // namespace millrace::device
