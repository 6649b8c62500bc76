// Restores running statistics and other buffers that a forward pass changes if the step does not count: otherwise a NaN in one
// input would stay in a BatchNorm for good.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

// A copy of each buffer as the last counted step left it. ATen changes running statistics without raising their version counters,
// so all buffers of up to kSmall elements are guarded; larger ones (tables, masks) from the first change of their counter.
class BufferGuard {
 public:
  static constexpr std::int64_t kSmall = std::int64_t{1} << 18;

  explicit BufferGuard(std::vector<at::Tensor> buffers);  // keeps references

  void begin();     // called before a step: takes over values that were loaded or restored since the last one
  void put_back();  // restores the values at begin(), in a step that is undone
  // Until the step ends any buffer may have changed: a device that repeats a recorded pass raises no counter.
  void distrust_counters() noexcept { trusts_counters_ = false; }
  void settle(const at::Tensor& skip);  // ends a step; `skip`: f32 scalar on the device, 1 = restore. Reads nothing back

  [[nodiscard]] std::vector<at::Tensor> moving() const;  // the guarded buffers

 private:
  struct Entry {
    at::Tensor buffer;
    at::Tensor kept;
    std::uint32_t version = 0;  // the buffer's, when it equalled `kept`
  };
  std::vector<Entry> entries_;
  bool begun_ = false;
  bool trusts_counters_ = true;
};

}  // namespace millrace
