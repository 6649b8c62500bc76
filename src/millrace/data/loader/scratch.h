// Memory for the duration of a call, kept by its thread for the next call.
#pragma once

#include <cstddef>

namespace millrace::data::detail {

// `bytes` of memory, 64-byte aligned, not cleared. Objects of one thread must be destroyed in reverse order of construction, like
// locals: for each depth the thread keeps the largest block that was requested there.
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
