// Divides the accounts `forward` and `backward` among the blocks of a model.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/memory/block_clock.h"

namespace millrace {

// Seconds that the forward and the backward passes spend in one block.
struct BlockTime {
  std::string name;  // "(outside)": time in no block
  double forward = 0, backward = 0;
  [[nodiscard]] double both() const noexcept { return forward + backward; }
};

// Divides the two accounts in the proportions of the timed steps, in the model's order; the parts add up to the accounts. Empty
// if no step was timed or the model names fewer than two blocks.
[[nodiscard]] std::vector<BlockTime> share_out(double forward, double backward,
                                               const std::vector<memory::BlockClock::Part>& timed);
[[nodiscard]] Json to_json(const std::vector<BlockTime>& blocks);         // [{"block", "forward", "backward"}]
[[nodiscard]] std::vector<BlockTime> block_times_of(const Json& blocks);  // takes any JSON; malformed entries are skipped
[[nodiscard]] std::vector<BlockTime> longest_first(std::vector<BlockTime> blocks);
// The longest blocks: "conv.3 41 % (backward 27 %), conv.2 20 % (backward 14 %)"; their names are unchanged.
[[nodiscard]] std::string to_text(const std::vector<BlockTime>& blocks);

}  // namespace millrace
