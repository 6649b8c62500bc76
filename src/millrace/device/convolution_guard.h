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

// Returns the rows that apply in this process; empty if no row does. If a row applies, the first call installs a guard that obeys
// the rows until the process ends. set_threads() calls this function. Thread-safe.
const std::vector<const Fault*>& guard_convolutions();

// Installs the guard even if no row applies. Thread-safe.
void stand_guard();

// From here on these passes compute in fp32 if bf16 is requested, for any number of samples. It is for faults without a row, and
// holds until the process ends. No other convolution may run during the call.
void guard_also(const std::vector<FoundFault>& found);

// A watcher is called before each convolution if a guard is installed, with the operation's name ("aten::convolution_backward")
// and the call. It runs in the calling thread and must not throw. set_convolution_watcher() sets it for the whole process and
// returns the previous one; nullptr = no watcher.
using ConvolutionWatcher = void (*)(const char* operation, const ConvolutionCall& call) noexcept;
ConvolutionWatcher set_convolution_watcher(ConvolutionWatcher watcher) noexcept;

// For tests: while this object exists, the rows of another CPU replace this CPU's rows and the found faults. One at a time, and
// no other convolutions may run meanwhile.
class ConvolutionGuardForTest {
 public:
  explicit ConvolutionGuardForTest(const Below& below);
  ~ConvolutionGuardForTest();
  ConvolutionGuardForTest(const ConvolutionGuardForTest&) = delete;
  ConvolutionGuardForTest& operator=(const ConvolutionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times(std::string_view fault) const;  // number of times that the fault was avoided
};

}  // namespace millrace::device
