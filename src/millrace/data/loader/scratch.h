// Memory for the duration of a call. The thread keeps the memory and uses it again in its next call.
#pragma once

#include <cstddef>

namespace millrace::data::detail {

// A block of `bytes` bytes, aligned to 64 bytes, not cleared. Objects of a thread must be destroyed in the reverse order of
// their construction, like local variables. For each depth of nesting the thread keeps the largest block that was ever requested
// at that depth.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace millrace::data::detail
