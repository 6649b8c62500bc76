// Stands before every convolution on a CPU, whoever calls it, and takes the way around a known fault.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/device/convolution_shape.h"
#include "millrace/device/faults.h"

namespace millrace::device {

// The rows that are in force in this process, and from the first call on a guard that obeys them until the process ends; where
// none is, nothing is put before a convolution. set_threads() calls it. Thread-safe.
const std::vector<const Fault*>& guard_convolutions();

// The guard itself, also where no row is in force. Thread-safe.
void stand_guard();

// From here on these passes are computed in fp32 when they are asked for in bf16, with any number of samples: faults that have no
// row. Until the process ends; no convolution meanwhile elsewhere.
void guard_also(const std::vector<FoundFault>& found);

// Told of each convolution before it runs, where a guard stands: "aten::convolution_backward" and the call. In the thread that
// calls; must not throw. For whole processes; nullptr = nobody is told. Returns who was told before.
using ConvolutionWatcher = void (*)(const char* operation, const ConvolutionCall& call) noexcept;
ConvolutionWatcher set_convolution_watcher(ConvolutionWatcher watcher) noexcept;

// For tests: another CPU's rows in place of this one's and of what was found, until destruction. One at a time, no convolution
// meanwhile elsewhere.
class ConvolutionGuardForTest {
 public:
  explicit ConvolutionGuardForTest(const Below& below);
  ~ConvolutionGuardForTest();
  ConvolutionGuardForTest(const ConvolutionGuardForTest&) = delete;
  ConvolutionGuardForTest& operator=(const ConvolutionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times(std::string_view fault) const;  // that it was gone around
};

}  // namespace millrace::device
