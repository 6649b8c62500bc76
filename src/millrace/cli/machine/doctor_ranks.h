// Measures the communication between ranks: between two on this machine, or between all ranks if a launcher started this command.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "millrace/base/json.h"

namespace millrace::cli {

struct RankRates {
  int ranks = 0;
  double latency = 0;  // seconds of an all-reduce of one number
  double seconds = 0;  // seconds of an all-reduce of `bytes` bytes
  std::uint64_t bytes = 0;
  // Bytes of gradients that are added up per second. The rate can be compared between different numbers of ranks.
  [[nodiscard]] double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

[[nodiscard]] bool is_rank();  // from the environment: true if a launcher started several processes and this is one of them
// Called on each rank. Joins the other ranks and measures the communication; rank 0 prints the results. Throws DistributedError
// if the ranks can't meet.
int doctor_ranks(bool json);
// Starts two ranks on this machine by `millrace launch` and returns their rates. nullopt if they could not meet; `failure` then
// says why.
[[nodiscard]] std::optional<RankRates> measure_ranks(std::string& failure);
[[nodiscard]] std::string to_text(const RankRates& rates);

inline constexpr int kUsualPort = 29500;  // the default port of torchrun's ranks
// True if this process can listen on the port.
[[nodiscard]] bool port_is_free(int port);

}  // namespace millrace::cli
