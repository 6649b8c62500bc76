// Keys for randomness inside a step: a pure function of seed, step, micro-step and call site, never of threads or timing.
#pragma once

#include <cstdint>

namespace millrace {

// Set by the trainer before each forward pass, read by layers that draw random numbers (dropout). Thread-local: the loop's
// thread owns LibTorch. Each next_key() call within a forward pass is one site; the order of calls is the model's order.
class RandomScope {
 public:
  RandomScope(std::uint64_t seed, std::uint64_t step, std::uint64_t micro_step) noexcept;
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // Key of the next site of the innermost scope. Outside any scope: drawn from ATen's default CPU generator, so that a layer
  // used alone behaves as torch users expect (torch.manual_seed repeats it).
  [[nodiscard]] static std::uint64_t next_key();

 private:
  std::uint64_t seed_;
  std::uint64_t step_;
  std::uint64_t micro_step_;
  std::uint64_t site_ = 0;
  RandomScope* outer_;
};

}  // namespace millrace
