// Tests convolutions in a separate process before a run computes them in bf16. For some shapes oneDNN hangs, crashes or gives
// wrong results, and some of these faults have no row in faults.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"

namespace millrace::device {

// Runs `step` and returns the convolutions that it calls on a CPU, each shape once, in the order of its first call. Only one
// call may run at a time.
[[nodiscard]] std::vector<ConvolutionShape> convolutions_of(const std::function<void()>& step);

struct ConvolutionTrial {
  std::vector<FoundFault> faults;
  std::int64_t tried = 0;  // shapes with a verdict for all passes
  std::string untried;     // why some shapes have no verdict; "" = all shapes have a verdict
};

// Computes the output and both gradients of each shape in bf16, in both layouts, and compares them with fp32. The program
// millrace-convolutions computes them with `threads` threads, and works around the same known faults as a run. The program
// computes each result several times, with memory filled with NaN, with large numbers and with zeros. Zones with the same
// filling surround inputs and outputs.
// A pass is faulty if
// - a value is not finite,
// - the norm of the error is more than 5 % of the result's norm,
// - an element is off by more than a quarter of the sum of its magnitude and the root mean square of all elements,
// - the pass writes outside its memory, or the program dies in it, or
// - the pass takes two seconds more than a hundred times the core time of fp32. Core time does not depend on other programs.
// A shape is not tried if it does not fit into nine tenths of the free memory, or if its fp32 reference takes each thread longer
// than `start_ms` on a core.
// The call first returns the C library's freed memory to the system, and waits for the program, which dies with this process. It
// calls `goes_on` several times a second with the number of passes done and the number of all passes. After `goes_on` returns
// false, the remaining shapes stay untried. Throws Stopped (system/stop.h) and the exceptions of `goes_on`.
using TrialGoesOn = std::function<bool(std::size_t done, std::size_t all)>;
[[nodiscard]] ConvolutionTrial try_convolutions(std::span<const ConvolutionShape> shapes, int threads, double start_ms = 60'000,
                                                const TrialGoesOn& goes_on = nullptr);

}  // namespace millrace::device
