// Works around a known fault of PyTorch's fused attention on a CPU, whose products of 16-bit numbers can race. Applies to all
// callers.
#pragma once

#include <cstdint>

#include "millrace/device/faults.h"

namespace millrace::device {

// Returns the fault's row if it applies in this process (CPUs with AMX), else nullptr. If it applies, the first call installs a
// guard that stays until the process ends: attention with more than one thread is computed in fp32, forward and backward, and
// returned in the format of the queries. set_threads() calls this function. Thread-safe.
const Fault* guard_attention();

// For tests: the row applies on any CPU while this object exists. One at a time, and no other attention may run meanwhile.
class AttentionGuardForTest {
 public:
  AttentionGuardForTest();
  ~AttentionGuardForTest();
  AttentionGuardForTest(const AttentionGuardForTest&) = delete;
  AttentionGuardForTest& operator=(const AttentionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times() const;  // number of times the fault was avoided, forward and backward
};

}  // namespace millrace::device
