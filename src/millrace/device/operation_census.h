// What the operations of one step are: how many, how long, which of them make the same tensors in every step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace millrace::device {

// Operations that the step itself calls, not those that they call in turn. Seconds on the calling thread: of a CPU, what they
// take; of a GPU, what launching them takes.
struct OperationCensus {
  std::int64_t operations = 0;
  double seconds = 0;
  std::int64_t host_reads = 0;  // values that the host asked for, but for those that ExpectedReads covers
  // Operations whose tensors come from no parameter, no batch and no random number: from ones(), arange(), tril() of those …
  double rebuilt_seconds = 0;
  std::string rebuilt_by;  // the longest of them with the size that it makes: "aten::tril [256, 256]"
  // Copies of tensors from one device to another, but for those that ExpectedCopies covers.
  std::int64_t copies = 0;
  double copied_seconds = 0;
  std::string copied_by;  // the largest of them: "aten::to [256, 256] from cpu to cuda:0"
};

// Meanwhile this thread's copies are none that a census counts: a batch is on its way.
class ExpectedCopies {
 public:
  ExpectedCopies() noexcept;
  ~ExpectedCopies();
  ExpectedCopies(const ExpectedCopies&) = delete;
  ExpectedCopies& operator=(const ExpectedCopies&) = delete;
};

// Meanwhile values that this thread asks for are none that a census counts, and their waits no part of its seconds: whoever makes
// the step for a trial asks, not the step.
class ExpectedReads {
 public:
  ExpectedReads() noexcept;
  ~ExpectedReads();
  ExpectedReads(const ExpectedReads&) = delete;
  ExpectedReads& operator=(const ExpectedReads&) = delete;
};

// Runs `step` in the calling thread and counts what it calls there. Costs the step some microseconds an operation.
[[nodiscard]] OperationCensus census_of(const std::function<void()>& step);

}  // namespace millrace::device
