// Chooses the blocks to recompute so that a step stays within a number of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/memory/budget.h"
#include "millrace/memory/profile.h"

namespace millrace::memory {

// Plans which blocks to recompute, from two measured steps: one kept everything, the other recomputed every block. The planner
// predicts the memory of any choice of blocks. The prediction assumes that a block's saved bytes exist from the end of its
// forward pass to the start of its backward pass. Each segment of the step has its own peak.
class Planner {
 public:
  // The costs of all runs of a block in a step, added up.
  struct BlockCost {
    std::string name;
    std::uint64_t saved_bytes = 0;  // freed between the passes if the block is recomputed
    double ms = 0;                  // milliseconds that recomputing the block costs
  };

  // The point of a step that uses most memory.
  struct Peak {
    std::uint64_t bytes = 0;
    // "in the backward pass of layer1", "after the forward pass of layer7", "before the first block"; "" without blocks
    std::string where;
  };

  struct RecomputePlan {
    std::vector<std::string> blocks;  // the blocks to recompute
    std::string peak_in;              // see Peak::where
    std::uint64_t predicted_bytes = 0;
    double extra_ms = 0;
    bool fits = true;  // false: the step does not fit, even with all blocks recomputed
  };

  // If `plain` is nullopt, because that step did not fit, the planner derives it from `recomputed` and the bytes that the second
  // passes brought back.
  Planner(StepProfile recomputed, std::optional<StepProfile> plain);

  [[nodiscard]] const std::vector<BlockCost>& costs() const noexcept { return costs_; }
  [[nodiscard]] std::uint64_t plain_bytes() const { return predict({}); }
  [[nodiscard]] bool measured_plain() const noexcept { return measured_plain_; }
  // The peak of a step that recomputes `blocks`.
  [[nodiscard]] Peak peak(const std::vector<std::string>& blocks) const;
  [[nodiscard]] std::uint64_t predict(const std::vector<std::string>& blocks) const { return peak(blocks).bytes; }
  // Adds blocks in descending order of saved bytes per recomputed millisecond, until the prediction is within `bytes`. Then
  // removes blocks that turn out to be unnecessary.
  [[nodiscard]] RecomputePlan choose(std::uint64_t bytes) const;

 private:
  StepProfile recomputed_;
  StepProfile plain_;
  bool measured_plain_;
  std::vector<std::uint64_t> saved_;  // saved bytes of each run of a block
  std::vector<BlockCost> costs_;
};

}  // namespace millrace::memory
