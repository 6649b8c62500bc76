// Tests convolutions in a separate process before a run computes them in bf16. For some shapes oneDNN hangs, crashes or gives
// wrong results, and not all of these have a row in faults.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"

namespace millrace::device {

// Runs `step` and returns the convolutions that it calls on a CPU, each shape once, in the order of its first call. One at a
// time.
[[nodiscard]] std::vector<ConvolutionShape> convolutions_of(const std::function<void()>& step);

struct ConvolutionTrial {
  std::vector<FoundFault> faults;
  std::int64_t tried = 0;  // shapes with a verdict for all passes
  std::string untried;     // why the other shapes have no verdict; "" = all have one
};

// Compares the output and both gradients of each shape in bf16, in both layouts, with fp32. The program millrace-convolutions
// does this with `threads` threads; it obeys the guard's rows as a run does. Each result is computed several times, with memory
// filled with NaN, with large numbers and with zeros; inputs and outputs lie between zones filled in the same way.
// A pass is a fault in any of these cases: a value is not finite; all elements together are off by more than 5 % of their size,
// or one element by more than a quarter of its own size plus the usual size; it writes outside its memory; the program dies in
// it; it takes a hundred times the core time of fp32 and two seconds more. Core time is used so that other programs cause no
// fault.
// Shapes are not tried if they do not fit into nine tenths of the free memory, or if their fp32 reference takes each thread
// longer than `start_ms` on a core. Before all this the C library's freed memory is returned to the system. Waits for the
// program, which dies with this process. Throws no errors of its own.
[[nodiscard]] ConvolutionTrial try_convolutions(std::span<const ConvolutionShape> shapes, int threads, double start_ms = 60'000);

}  // namespace millrace::device
