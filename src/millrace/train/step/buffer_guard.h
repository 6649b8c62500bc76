// Running statistics and other buffers that a forward pass moves, put back when the step does not count: a NaN in one input would
// otherwise stay in a BatchNorm for good.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

// A copy of each buffer as the last step that counted left it. ATen moves running statistics without telling their version
// counters, so all buffers of up to kSmall elements are looked after; larger ones (tables, masks) once their counter moves.
class BufferGuard {
 public:
  static constexpr std::int64_t kSmall = std::int64_t{1} << 18;

  explicit BufferGuard(std::vector<at::Tensor> buffers);  // keeps references

  void begin();                         // before a step: takes over what was loaded or put back since the last one
  void put_back();                      // what they were at begin(), in a step that is taken back
  void settle(const at::Tensor& skip);  // after it: scalar f32 on the device, 1 = back to what they were. Reads nothing back.

  [[nodiscard]] std::vector<at::Tensor> moving() const;  // the buffers looked after

 private:
  struct Entry {
    at::Tensor buffer;
    at::Tensor kept;
    std::uint32_t version = 0;  // of the buffer when it equalled `kept`
  };
  std::vector<Entry> entries_;
  bool begun_ = false;
};

}  // namespace millrace
