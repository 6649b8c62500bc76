// Chooses the blocks to recompute so that a step stays within given bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/memory/budget.h"
#include "millrace/memory/profile.h"

namespace millrace::memory {

// Planned from a step that kept everything and a step that recomputed every block. Any choice between them can be predicted: a
// block's saved bytes are alive from the end of its forward pass to the start of its backward pass, and each segment of the step
// has its own peak.
class Planner {
 public:
  // Costs per block name, summed over its runs in a step.
  struct BlockCost {
    std::string name;
    std::uint64_t saved_bytes = 0;  // freed between the passes if the block is recomputed
    double ms = 0;                  // time that recomputing costs
  };

  // The point at which a step uses most memory.
  struct Peak {
    std::uint64_t bytes = 0;
    std::string where;  // "in the backward pass of layer1", "after the forward pass of layer7", "before the first block"; ""
                        // without blocks
  };

  struct RecomputePlan {
    std::vector<std::string> blocks;  // to recompute
    std::string peak_in;              // as Peak::where
    std::uint64_t predicted_bytes = 0;
    double extra_ms = 0;
    bool fits = true;  // false: recomputing all blocks is not enough
  };

  // If `plain` is missing because that step did not fit, it is derived from `recomputed` and the bytes that its second passes
  // brought back.
  Planner(StepProfile recomputed, std::optional<StepProfile> plain);

  [[nodiscard]] const std::vector<BlockCost>& costs() const noexcept { return costs_; }
  [[nodiscard]] std::uint64_t plain_bytes() const { return predict({}); }
  [[nodiscard]] bool measured_plain() const noexcept { return measured_plain_; }
  // Peak of a step that recomputes `blocks`.
  [[nodiscard]] Peak peak(const std::vector<std::string>& blocks) const;
  [[nodiscard]] std::uint64_t predict(const std::vector<std::string>& blocks) const { return peak(blocks).bytes; }
  // Adds the blocks with most saved bytes per recomputed millisecond first, until the prediction is within `bytes`; then removes
  // those that turn out to be unnecessary.
  [[nodiscard]] RecomputePlan choose(std::uint64_t bytes) const;

 private:
  StepProfile recomputed_;
  StepProfile plain_;
  bool measured_plain_;
  std::vector<std::uint64_t> saved_;  // indexed by the run of a block
  std::vector<BlockCost> costs_;
};

}  // namespace millrace::memory
