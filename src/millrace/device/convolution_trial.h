// Convolutions tried in a process of their own before a run computes them in bf16: oneDNN has shapes that never come back, crash
// or are wrong, and not all of them have a row in faults.h.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "millrace/device/convolution_shape.h"

namespace millrace::device {

// The convolutions that `step` calls on a CPU, each shape once, in the order of its first call. One at a time.
[[nodiscard]] std::vector<ConvolutionShape> convolutions_of(const std::function<void()>& step);

struct ConvolutionTrial {
  std::vector<FoundFault> faults;
  std::int64_t tried = 0;  // shapes whose passes all came to a verdict
  std::string untried;     // why the others did not, "" = all did
};

// The output and both gradients of each shape in bf16, in both layouts, against fp32, by millrace-convolutions with `threads`
// threads; that program obeys the guard's rows as a run does. Each is computed some times, amid memory that is full of NaN, of
// large numbers and of zeros; what it reads and writes lies between zones of that. A pass is a fault when it is not finite, when
// all elements together are off by more than 5 % of their size or one is by a quarter of its own and the usual size, when
// anything is written outside, when the program dies in it, or when it takes a hundred times as much of the cores as in fp32 and
// two seconds more (time on a core, so other programs make no fault). Shapes that nine tenths of the free memory do not hold stay
// untried, as do those whose fp32 reference takes each thread longer than `start_ms` on a core. Gives the system what the C
// library keeps of freed memory first. Waits for the program, which dies with this process. Throws nothing of its own.
[[nodiscard]] ConvolutionTrial try_convolutions(std::span<const ConvolutionShape> shapes, int threads, double start_ms = 60'000);

}  // namespace millrace::device
