// Measures the communication between ranks: two on this machine, or those that a launcher started with this command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/base/json.h"

namespace millrace::cli {

struct RankRates {
  int ranks = 0;
  double latency = 0;  // seconds until all ranks have the sum of one number each
  double seconds = 0;  // seconds until all ranks have the sum of `bytes` of numbers each
  std::uint64_t bytes = 0;
  // Bytes of gradients per second, independent of the number of ranks.
  [[nodiscard]] double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

[[nodiscard]] bool is_rank();  // from the environment: true for one of several processes of a launcher
// Runs in such a rank: joins the others, measures, and rank 0 prints. DistributedError if they can't meet.
int doctor_ranks(bool json);
// Starts two ranks on this machine, by `millrace launch`, and returns their rates. nullopt if they could not meet; `failure` then
// says why.
[[nodiscard]] std::optional<RankRates> measure_ranks(std::string& failure);
[[nodiscard]] std::string to_text(const RankRates& rates);

inline constexpr int kUsualPort = 29500;  // the default port of torchrun's ranks
// True if a port of this machine can be listened on.
[[nodiscard]] bool port_is_free(int port);

}  // namespace millrace::cli
