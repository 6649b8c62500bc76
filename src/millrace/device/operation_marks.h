// Which operation of LibTorch is running, for base/doing.h.
#pragma once

#include <cstdint>

namespace millrace::device {

// From here on convolutions on a CPU are told with their shapes, as far as device/convolution_guard.h stands. About a microsecond
// each.
void mark_convolutions() noexcept;

// All operations that the calling thread runs, by name, until destruction. For trials; their times are compared, so it is cheap.
class OperationMarks {
 public:
  OperationMarks();
  ~OperationMarks();
  OperationMarks(const OperationMarks&) = delete;
  OperationMarks& operator=(const OperationMarks&) = delete;

 private:
  std::uint64_t handle_;
};

}  // namespace millrace::device
