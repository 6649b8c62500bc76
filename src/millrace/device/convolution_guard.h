// Guards every convolution on a CPU, for all callers, and works around known faults.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/device/convolution_shape.h"
#include "millrace/device/faults.h"

namespace millrace::device {

// Returns the rows in force in this process, and installs with the first call a guard that obeys them until the process ends.
// set_threads() calls it. Thread-safe. Empty if no row is in force; then no guard is installed.
const std::vector<const Fault*>& guard_convolutions();

// Installs the guard itself, even if no row is in force. Thread-safe.
void stand_guard();

// Makes these passes, whose faults have no row, compute in fp32 from here on if bf16 is requested, with any number of samples.
// Holds until the process ends; no convolution may run elsewhere during the call.
void guard_also(const std::vector<FoundFault>& found);

// Called for each convolution before it runs, if a guard is installed: with "aten::convolution_backward" and the call. Runs in
// the calling thread; must not throw. Applies to the whole process; nullptr = no watcher. Returns the previous watcher.
using ConvolutionWatcher = void (*)(const char* operation, const ConvolutionCall& call) noexcept;
ConvolutionWatcher set_convolution_watcher(ConvolutionWatcher watcher) noexcept;

// For tests: another CPU's rows replace this one's and the faults found, until destruction. One at a time, without convolutions
// elsewhere meanwhile.
class ConvolutionGuardForTest {
 public:
  explicit ConvolutionGuardForTest(const Below& below);
  ~ConvolutionGuardForTest();
  ConvolutionGuardForTest(const ConvolutionGuardForTest&) = delete;
  ConvolutionGuardForTest& operator=(const ConvolutionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times(std::string_view fault) const;  // how often the fault was avoided
};

}  // namespace millrace::device
