// Divides a run's time in the accounts `forward` and `backward` among the blocks of its model.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/memory/block_clock.h"

namespace millrace {

// The seconds that a block takes in forward and in backward passes.
struct BlockTime {
  std::string name;  // "(outside)" = time outside all blocks
  double forward = 0, backward = 0;
  [[nodiscard]] double both() const noexcept { return forward + backward; }
};

// Divides the seconds `forward` and `backward` among the blocks, in the model's order. The proportions are those of the steps
// that were timed. The shares add up to `forward` and `backward`. Empty if no step was timed or the model names fewer than two
// blocks.
[[nodiscard]] std::vector<BlockTime> share_out(double forward, double backward,
                                               const std::vector<memory::BlockClock::Part>& timed);
[[nodiscard]] Json to_json(const std::vector<BlockTime>& blocks);         // [{"block", "forward", "backward"}]
[[nodiscard]] std::vector<BlockTime> block_times_of(const Json& blocks);  // takes any JSON; malformed entries are skipped
[[nodiscard]] std::vector<BlockTime> longest_first(std::vector<BlockTime> blocks);
// The blocks that take longest: "conv.3 41 % (backward 27 %), conv.2 20 % (backward 14 %)". The names are those of the model.
[[nodiscard]] std::string to_text(const std::vector<BlockTime>& blocks);

}  // namespace millrace
