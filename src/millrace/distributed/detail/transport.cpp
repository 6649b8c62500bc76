#include "millrace/distributed/detail/transport.h"

#include <algorithm>

#include "millrace/base/error.h"

namespace millrace::distributed {
namespace {

std::string named(std::size_t rank, const RankDevice& device) { return "rank " + std::to_string(rank) + " on " + device.host; }

// Says why the ranks' GPUs can't add up tensors directly; "" if they can.
std::string obstacle(const std::vector<RankDevice>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].gpu.empty()) return named(rank, ranks[rank]) + " computes on its CPU";
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].library.empty()) return named(rank, ranks[rank]) + ": " + ranks[rank].why_none;
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].library != ranks[0].library)
      return named(rank, ranks[rank]) + " has " + ranks[rank].library + ", but rank 0 has " + ranks[0].library;
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      if (ranks[other].host != ranks[rank].host || ranks[other].gpu != ranks[rank].gpu) continue;
      return "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " share GPU " + ranks[rank].gpu + " of " +
             ranks[rank].host + ", but NCCL needs a GPU for each rank";
    }
  }
  return "";
}

}  // namespace

Json RankDevice::to_json() const { return {{"host", host}, {"gpu", gpu}, {"library", library}, {"why_none", why_none}}; }

RankDevice RankDevice::of(const Json& json) {
  const auto text = [&json](const char* key) { return json.at(key).get<std::string>(); };
  return {text("host"), text("gpu"), text("library"), text("why_none")};
}

Chosen<std::string> choose_transport(const std::vector<RankDevice>& ranks, const std::string& wish) {
  const bool none_has_a_gpu = std::ranges::all_of(ranks, [](const RankDevice& rank) { return rank.gpu.empty(); });
  const std::string problem = obstacle(ranks);
  if (wish == "nccl" && !problem.empty())
    throw ConfigError(
        {.what = "the ranks can't add up tensors over NCCL: " + problem,
         .where = "distributed.transport",
         .next = "remove this cause, or set distributed.transport=auto: Gloo then carries the tensors through host memory"});
  if (none_has_a_gpu) return {"gloo", "the ranks compute on CPUs"};
  if (wish == "gloo") return {"gloo", "as the config says; tensors of a GPU are copied through host memory"};
  if (!problem.empty()) return {"gloo", "through host memory, because " + problem};
  return {"nccl", ranks[0].library + ", a GPU for each rank"};
}

}  // namespace millrace::distributed
