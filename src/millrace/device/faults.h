// Known faults of the libraries that Millrace calls: wrong values and slow implementations. Each row describes the affected
// calls and the workaround. docs/decisions/0039 describes how the faults were found.
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

// The instruction sets of oneDNN's code. Each includes those before it.
enum class OnednnIsa : std::uint8_t { older, avx2, avx512, avx512_bf16, amx };
using Version = std::array<int, 3>;

// The libraries and the CPU on which a fault depends.
struct Below {
  OnednnIsa isa = OnednnIsa::older;
  Version onednn = {};
  std::int64_t level2_bytes = 0;  // size of a core's level 2 cache; 0 if the CPU does not report it
};
// `limit` is the value of ONEDNN_MAX_CPU_ISA ("" = not set). It lowers the CPU's instruction set in the result.
[[nodiscard]] Below below(const Cpu& cpu, std::string_view limit, std::string_view onednn_text);
[[nodiscard]] const Below& below();  // the libraries and the CPU of this process

enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };
// Workarounds, in order of preference. fp32 also avoids the faults that the other workarounds avoid.
enum class Instead : std::uint8_t {
  fp32,  // computes in fp32 from the operands' values, not channels-last; the result gets the operands' format and layout
  // Computes a volume's weight gradient by two-dimensional convolutions, each of them guarded (kernels/convolution_weights.h).
  planes,
  contiguous,  // copies channels-last operands to contiguous memory
  onednn       // computes with oneDNN, which ATen would not have used
};

// The arguments of a convolution, as ATen receives them. A transposed convolution has the `weight` of the convolution that it
// transposes.
struct ConvolutionCall {
  at::ScalarType format = at::kFloat;
  bool channels_last = false;  // true if the input or the weight is channels-last
  bool transposed = false;
  at::IntArrayRef input, weight, stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  OnednnIsa isa = OnednnIsa::older;
  std::int64_t level2_bytes = 0;  // see Below::level2_bytes
};
// The output's size along a direction in space (0 = the outermost).
[[nodiscard]] std::int64_t output_size(const ConvolutionCall& call, std::size_t direction);

struct Fault {
  std::string_view name;                 // short text for plans: where the fault was reported
  std::string_view reported;             // where the fault was reported, full form
  std::string_view what;                 // effect of the fault
  OnednnIsa from, to;                    // first and last instruction set with the fault
  Version fixed_in;                      // first version without the fault; all zero: it is not fixed yet
  std::optional<at::ScalarType> format;  // nullopt: any format
  std::optional<Pass> pass;              // nullopt: every pass
  bool (*hits)(const ConvolutionCall& call);
  Instead instead;
};

[[nodiscard]] std::span<const Fault> known_faults();
[[nodiscard]] std::vector<const Fault*> faults_in_force(const Below& below);
// Returns the fault in `faults` that matches a pass of this call; nullptr if no fault matches. If several faults match, returns
// the fault whose workaround comes first in Instead. Among faults with equal workarounds, returns the first.
[[nodiscard]] const Fault* fault_of(std::span<const Fault* const> faults, const ConvolutionCall& call, Pass pass);

}  // namespace millrace::device
