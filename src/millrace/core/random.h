// Keys for randomness inside a step: a pure function of seed, step, micro-step and call site, never of threads or timing.
#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

// Set by the trainer before each forward pass, read by layers that draw random numbers (dropout). Thread-local: the loop's
// thread owns LibTorch. Each next_key() call within a forward pass is one site; the order of calls is the model's order.
class RandomScope {
 public:
  // Where a scope stands: a part of the forward pass that is computed a second time goes on from the same site.
  struct Place {
    std::uint64_t seed = 0, step = 0, micro_step = 0, site = 0;
  };

  explicit RandomScope(const Place& place) noexcept;
  RandomScope(std::uint64_t seed, std::uint64_t step, std::uint64_t micro_step) noexcept;
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // Key of the next site of the innermost scope. Outside any scope: drawn from ATen's default CPU generator, so that a layer
  // used alone behaves as torch users expect (torch.manual_seed repeats it).
  [[nodiscard]] static std::uint64_t next_key();
  [[nodiscard]] static std::optional<Place> place() noexcept;  // of the innermost scope; nullopt outside any

 private:
  Place place_;
  RandomScope* outer_;
};

}  // namespace millrace
