// Stands before PyTorch's fused attention on a CPU, whoever calls it, where its products of 16-bit numbers are known to race.
#pragma once

#include <cstdint>

#include "millrace/device/faults.h"

namespace millrace::device {

// The row where it is in force in this process (CPUs with AMX), and from the first call on a guard that obeys it until the
// process ends: attention by more than one thread is computed in fp32, forward and backward, and comes back in the format of the
// queries. nullptr elsewhere, where nothing is registered. set_threads() calls it. Thread-safe.
const Fault* guard_attention();

// For tests: the row is in force whatever this CPU is, until destruction. One at a time, no attention meanwhile elsewhere.
class AttentionGuardForTest {
 public:
  AttentionGuardForTest();
  ~AttentionGuardForTest();
  AttentionGuardForTest(const AttentionGuardForTest&) = delete;
  AttentionGuardForTest& operator=(const AttentionGuardForTest&) = delete;
  [[nodiscard]] std::int64_t times() const;  // that the fault was gone around, forward and backward
};

}  // namespace millrace::device
