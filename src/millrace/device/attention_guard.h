// Works around a known fault of PyTorch's fused attention on a CPU, where products of 16-bit numbers can race. The workaround
// applies to all callers.
#pragma once

#include <cstdint>

#include "millrace/device/faults.h"

namespace millrace::device {

// Returns the fault's entry if the fault applies in this process (CPUs with AMX), else nullptr. If it applies, the first call
// installs a guard that stays until the process ends. If there is more than one thread, the guard computes attention in fp32,
// forward and backward, and returns the result in the number format of the queries. set_threads() calls this function.
// Thread-safe.
const Fault* guard_attention();

// For tests: while this object exists, the fault counts as present on any CPU. Only one object may exist at a time, and no
// other attention may run meanwhile.
class AttentionGuardForTest {
 public:
  AttentionGuardForTest();
  ~AttentionGuardForTest();
  AttentionGuardForTest(const AttentionGuardForTest&) = delete;
  AttentionGuardForTest& operator=(const AttentionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times() const;  // number of times the fault was avoided, forward and backward
};

}  // namespace millrace::device
