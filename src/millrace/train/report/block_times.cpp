#include "millrace/train/report/block_times.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "millrace/base/format.h"

namespace millrace {
namespace {

std::optional<double> seconds_at(const Json& block, const char* key) {
  const auto found = block.find(key);
  if (found == block.end() || !found->is_number()) return std::nullopt;
  const auto seconds = found->get<double>();
  return std::isfinite(seconds) && seconds >= 0 && seconds < 1e12 ? std::optional(seconds) : std::nullopt;
}

}  // namespace

std::vector<BlockTime> share_out(double forward, double backward, const std::vector<memory::BlockClock::Part>& timed) {
  double all_forward = 0, all_backward = 0;
  for (const memory::BlockClock::Part& part : timed) {
    all_forward += static_cast<double>(part.forward_ns);
    all_backward += static_cast<double>(part.backward_ns);
  }
  constexpr std::size_t kFewest = 3;  // the fewest rows that are worth a table; the row (outside) counts too
  std::vector<BlockTime> blocks;
  if (timed.size() < kFewest || all_forward <= 0 || all_backward <= 0) return blocks;
  const auto add = [&](const std::string& name, const memory::BlockClock::Part& part) {
    blocks.push_back({.name = name,
                      .forward = forward * static_cast<double>(part.forward_ns) / all_forward,
                      .backward = backward * static_cast<double>(part.backward_ns) / all_backward});
  };
  for (std::size_t i = 1; i < timed.size(); ++i) add(timed[i].name, timed[i]);
  add("(outside)", timed.front());
  return blocks;
}

Json to_json(const std::vector<BlockTime>& blocks) {
  Json json = Json::array();
  for (const BlockTime& block : blocks)
    json.push_back({{"block", block.name}, {"forward", block.forward}, {"backward", block.backward}});
  return json;
}

std::vector<BlockTime> block_times_of(const Json& blocks) {
  std::vector<BlockTime> times;
  if (!blocks.is_array()) return times;
  for (const Json& block : blocks) {
    if (!block.is_object()) continue;
    const auto name = block.find("block");
    const auto forward = seconds_at(block, "forward"), backward = seconds_at(block, "backward");
    if (name != block.end() && name->is_string() && forward && backward)
      times.push_back({.name = name->get<std::string>(), .forward = *forward, .backward = *backward});
  }
  return times;
}

std::vector<BlockTime> longest_first(std::vector<BlockTime> blocks) {
  std::ranges::stable_sort(blocks, std::ranges::greater(), &BlockTime::both);
  return blocks;
}

std::string to_text(const std::vector<BlockTime>& blocks) {
  constexpr std::size_t kMost = 4;
  double all = 0;
  for (const BlockTime& block : blocks) all += block.both();
  if (all <= 0) return "";
  std::vector<BlockTime> longest = longest_first(blocks);
  longest.resize(std::min(longest.size(), kMost));
  return joined(longest, ", ", [all](const BlockTime& block) {
    return block.name + " " + percent(block.both() / all) + " (backward " + percent(block.backward / all) + ")";
  });
}

}  // namespace millrace
