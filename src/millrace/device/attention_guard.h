// Guards PyTorch's fused attention on a CPU, for all callers, if its products of 16-bit numbers are known to race.
#pragma once

#include <cstdint>

#include "millrace/device/faults.h"

namespace millrace::device {

// Returns the row if it is in force in this process (CPUs with AMX), and installs with the first call a guard that obeys it until
// the process ends: attention by more than one thread is computed in fp32, forward and backward, and returned in the format of
// the queries. set_threads() calls it. Thread-safe. nullptr elsewhere; then nothing is registered.
const Fault* guard_attention();

// For tests: the row is in force on any CPU, until destruction. One at a time, without attention elsewhere meanwhile.
class AttentionGuardForTest {
 public:
  AttentionGuardForTest();
  ~AttentionGuardForTest();
  AttentionGuardForTest(const AttentionGuardForTest&) = delete;
  AttentionGuardForTest& operator=(const AttentionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times() const;  // how often the fault was avoided, forward and backward
};

}  // namespace millrace::device
