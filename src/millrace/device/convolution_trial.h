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

// Compares the output and both gradients of each shape in bf16, in both layouts, with fp32, by millrace-convolutions with
// `threads` threads; that program obeys the guard's rows as a run does. Each is computed several times, with memory filled with
// NaN, with large numbers and with zeros; its inputs and outputs lie between zones filled alike. A pass is a fault if it is not
// finite, if all elements together are off by more than 5 % of their size or one element by a quarter of its own and the usual
// size, if it writes outside its memory, if the program dies in it, or if it takes a hundred times the core time of fp32 and two
// seconds more (core time, so other programs cause no fault). Shapes that do not fit into nine tenths of the free memory are not
// tried, and neither are those whose fp32 reference takes each thread longer than `start_ms` on a core. First returns the C
// library's freed memory to the system. Waits for the program, which dies with this process.
// `goes_on`, with the passes done and in all, is asked several times a second; once it says false, the rest is left untried.
// Throws Stopped (system/stop.h), and what `goes_on` throws.
using TrialGoesOn = std::function<bool(std::size_t done, std::size_t all)>;
[[nodiscard]] ConvolutionTrial try_convolutions(std::span<const ConvolutionShape> shapes, int threads, double start_ms = 60'000,
                                                const TrialGoesOn& goes_on = nullptr);

}  // namespace millrace::device
