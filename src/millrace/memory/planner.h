// What to compute again, so that a step stays within given bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/memory/budget.h"
#include "millrace/memory/profile.h"

namespace millrace::memory {

// Per block name, summed over its runs in a step.
struct BlockCost {
  std::string name;
  std::uint64_t saved_bytes = 0;  // not alive between the passes when it is recomputed
  double ms = 0;                  // what that costs
};

// Where a step holds most.
struct Peak {
  std::uint64_t bytes = 0;
  std::string
      where;  // "in the backward pass of layer1", "after the forward pass of layer7", "before the first block"; "" without blocks
};

struct RecomputePlan {
  std::vector<std::string> blocks;  // to recompute
  std::string peak_in;              // Peak::where
  std::uint64_t predicted_bytes = 0;
  double extra_ms = 0;
  bool fits = true;  // false: all blocks together are not enough
};

// From one step that kept everything and one that recomputed every block. Between them any choice can be told: a block's saved
// bytes are alive from the end of its forward pass to the start of its backward pass, and each stretch of the step has a peak of
// its own.
class Planner {
 public:
  // Without `plain` (it did not fit) what the second passes brought back stands for it.
  Planner(StepProfile recomputed, std::optional<StepProfile> plain);

  [[nodiscard]] const std::vector<BlockCost>& costs() const noexcept { return costs_; }
  [[nodiscard]] std::uint64_t plain_bytes() const { return predict({}); }
  [[nodiscard]] bool measured_plain() const noexcept { return measured_plain_; }
  // Peak of a step that recomputes these.
  [[nodiscard]] Peak peak(const std::vector<std::string>& blocks) const;
  [[nodiscard]] std::uint64_t predict(const std::vector<std::string>& blocks) const { return peak(blocks).bytes; }
  // Most saved bytes per recomputed millisecond first, until the prediction is within `bytes`; then without those that turn out
  // not to be needed.
  [[nodiscard]] RecomputePlan choose(std::uint64_t bytes) const;

 private:
  StepProfile recomputed_;
  StepProfile plain_;
  bool measured_plain_;
  std::vector<std::uint64_t> saved_;  // by run of a block
  std::vector<BlockCost> costs_;
};

}  // namespace millrace::memory
