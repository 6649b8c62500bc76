// Memory for the length of a call, kept by its thread for the next one.
#pragma once

#include <cstddef>

namespace millrace::data::detail {

// `bytes` of memory, aligned at 64, not cleared. Several of a thread are destroyed in the opposite order of their making, as
// locals are: what a thread keeps is for each depth the most that was asked for there.
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
