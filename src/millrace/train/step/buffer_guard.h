// Restores running statistics and other buffers after a step that does not count. Otherwise a NaN in one input would stay in a
// BatchNorm forever.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace millrace {

// Keeps a copy of each buffer as the last counted step left the buffer. All buffers of up to kSmall elements are guarded,
// because ATen changes running statistics without raising their version counters. Larger buffers (tables, masks) are guarded
// after their version counter has risen once.
class BufferGuard {
 public:
  static constexpr std::int64_t kSmall = std::int64_t{1} << 18;

  explicit BufferGuard(std::vector<at::Tensor> buffers);  // keeps references to the tensors

  void begin();     // call before a step: copies values that were loaded or restored since the last step
  void put_back();  // restores the values that begin() found; for a step that is undone
  // Until the step ends, every buffer counts as changed. Needed if a device replays a recorded pass, because a replay raises no
  // version counter.
  void distrust_counters() noexcept { trusts_counters_ = false; }
  void settle(const at::Tensor& skip);  // Ends a step. `skip`: f32 scalar on the device, 1 = restore the buffers. Copies no
                                        // value from the device.

  [[nodiscard]] std::vector<at::Tensor> moving() const;  // the guarded buffers

 private:
  struct Entry {
    at::Tensor buffer;
    at::Tensor kept;
    std::uint32_t version = 0;  // the buffer's version when its value equalled `kept`
  };
  std::vector<Entry> entries_;
  bool begun_ = false;
  bool trusts_counters_ = true;
};

}  // namespace millrace
