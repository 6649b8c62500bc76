// What ranks give each other: two of this machine, or those that a launcher started with this command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/base/json.h"

namespace millrace::cli {

struct RankRates {
  int ranks = 0;
  double latency = 0;  // seconds until all have the sum of one number each
  double seconds = 0;  // ... and of `bytes` of numbers each
  std::uint64_t bytes = 0;
  // Bytes of gradients a second, whatever the number of ranks.
  [[nodiscard]] double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

[[nodiscard]] bool is_rank();  // by the environment: one of several processes that a launcher started
// As such a rank: joins the others, measures, and rank 0 prints. DistributedError where they can't meet.
int doctor_ranks(bool json);
// Starts two ranks on this machine, by `millrace launch`, and asks them. nullopt: they could not meet, and `failure` says why.
[[nodiscard]] std::optional<RankRates> measure_ranks(std::string& failure);
[[nodiscard]] std::string to_text(const RankRates& rates);

inline constexpr int kUsualPort = 29500;  // where torchrun's ranks meet unless somebody says
// Whether a port of this machine can be listened on.
[[nodiscard]] bool port_is_free(int port);

}  // namespace millrace::cli
