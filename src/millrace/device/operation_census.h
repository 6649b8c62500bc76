// The operations of one step: their number, their time, and which of them make the same tensors in every step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace millrace::device {

// Counts operations that the step itself calls, not those that they call. Seconds on the calling thread: for a CPU the time of
// the operations, for a GPU that of their launches.
struct OperationCensus {
  std::int64_t operations = 0;
  double seconds = 0;
  std::int64_t host_reads = 0;  // values that the host read, except those within ExpectedReads
  // Operations whose tensors depend on no parameter, batch or random number: results of ones(), arange(), tril() of those …
  double rebuilt_seconds = 0;
  std::string rebuilt_by;  // the one that took longest, with the size of its result: "aten::tril [256, 256]"
  // Copies of tensors from one device to another, except those within ExpectedCopies.
  std::int64_t copies = 0;
  double copied_seconds = 0;
  std::string copied_by;  // the largest: "aten::to [256, 256] from cpu to cuda:0"
};

// While alive, copies on this thread are not counted in a census: they are the batch's own.
class ExpectedCopies {
 public:
  ExpectedCopies() noexcept;
  ~ExpectedCopies();
  ExpectedCopies(const ExpectedCopies&) = delete;
  ExpectedCopies& operator=(const ExpectedCopies&) = delete;
};

// While alive, values that this thread reads are not counted in a census, and their waits are not part of its seconds: the trial
// around the step reads them, not the step.
class ExpectedReads {
 public:
  ExpectedReads() noexcept;
  ~ExpectedReads();
  ExpectedReads(const ExpectedReads&) = delete;
  ExpectedReads& operator=(const ExpectedReads&) = delete;
};

// Runs `step` in the calling thread and counts the operations that it calls there. Costs the step some microseconds an operation.
[[nodiscard]] OperationCensus census_of(const std::function<void()>& step);

}  // namespace millrace::device
