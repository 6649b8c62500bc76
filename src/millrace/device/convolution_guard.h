// Guards every convolution on a CPU, for all callers: convolutions with a known fault are computed another way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/device/convolution_shape.h"
#include "millrace/device/faults.h"

namespace millrace::device {

// Returns the known faults (rows of faults.h) that apply in this process; empty if no fault does. If a fault applies, the first
// call installs a guard that works around these faults until the process ends. set_threads() calls this function. Thread-safe.
const std::vector<const Fault*>& guard_convolutions();

// Installs the guard even if no known fault applies. Thread-safe.
void stand_guard();

// After this call the passes in `found` are computed in fp32 where bf16 is requested, for any number of samples, until the
// process ends. Call it for faults that a trial found and that have no row in faults.h. No other convolution may run during the
// call.
void guard_also(const std::vector<FoundFault>& found);

// If a guard is installed, it calls the watcher before each convolution, with the operation's name
// ("aten::convolution_backward") and the convolution's arguments. The watcher runs in the calling thread and must not throw.
// set_convolution_watcher() sets the watcher of the whole process and returns the previous watcher; nullptr = no watcher.
using ConvolutionWatcher = void (*)(const char* operation, const ConvolutionCall& call) noexcept;
ConvolutionWatcher set_convolution_watcher(ConvolutionWatcher watcher) noexcept;

// For tests: while this object exists, the known faults of another CPU replace this CPU's known faults and the faults that
// trials found. Only one object may exist at a time, and no other convolutions may run meanwhile.
class ConvolutionGuardForTest {
 public:
  explicit ConvolutionGuardForTest(const Below& below);
  ~ConvolutionGuardForTest();
  ConvolutionGuardForTest(const ConvolutionGuardForTest&) = delete;
  ConvolutionGuardForTest& operator=(const ConvolutionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times(std::string_view fault) const;  // number of times that the fault was avoided
};

}  // namespace millrace::device
