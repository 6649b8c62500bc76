// Records which LibTorch operation is running, for the reports of base/doing.h.
#pragma once

#include <cstdint>

namespace millrace::device {

// After this call convolutions on a CPU are recorded with their shapes, if the guard of device/convolution_guard.h is
// installed. Costs about a microsecond per convolution.
void mark_convolutions() noexcept;

// While this object exists, records the names of all operations that the calling thread runs. The cost is so low that it does not
// disturb trials that compare times.
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
