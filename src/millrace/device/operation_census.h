// Counts the operations of one step: their number, their time, and the operations that make the same tensors in every step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace millrace::device {

// Counts operations that the step itself calls, but not operations that other operations call. Seconds are the calling thread's:
// on a CPU the time of the operations, on a GPU the time of their launches.
struct OperationCensus {
  std::int64_t operations = 0;
  double seconds = 0;
  std::int64_t host_reads = 0;  // values that the host read, except inside ExpectedReads
  // Time of operations that depend on no parameter, batch or random number: ones(), arange(), tril() of such tensors …
  double rebuilt_seconds = 0;
  std::string rebuilt_by;  // the operation that took longest, with its result's size: "aten::tril [256, 256]"
  // Copies of tensors from one device to another, except inside ExpectedCopies.
  std::int64_t copies = 0;
  double copied_seconds = 0;
  std::string copied_by;  // the largest copy: "aten::to [256, 256] from cpu to cuda:0"
};

// While this object exists, a census does not count this thread's copies, because they move the batch to the device.
class ExpectedCopies {
 public:
  ExpectedCopies() noexcept;
  ~ExpectedCopies();
  ExpectedCopies(const ExpectedCopies&) = delete;
  ExpectedCopies& operator=(const ExpectedCopies&) = delete;
};

// While this object exists, a census does not count values that this thread reads, nor the time of these reads, because they
// belong to the trial around the step.
class ExpectedReads {
 public:
  ExpectedReads() noexcept;
  ~ExpectedReads();
  ExpectedReads(const ExpectedReads&) = delete;
  ExpectedReads& operator=(const ExpectedReads&) = delete;
};

// Runs `step` in the calling thread and counts the operations that it calls. Costs the step some microseconds per operation.
[[nodiscard]] OperationCensus census_of(const std::function<void()>& step);

}  // namespace millrace::device
