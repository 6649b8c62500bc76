// Chooses how tensors travel between the ranks of a run.
#pragma once

#include <string>
#include <vector>

#include "millrace/core/agreement.h"

namespace millrace::distributed {

// The device on which a rank computes, and the library that could carry its tensors to the other ranks.
struct RankDevice {
  std::string host;
  std::string gpu;      // identity of the GPU, the same for all processes on that host; "" = the rank computes on its CPU
  std::string library;  // "NCCL 2.28.9"; "" = no library carries the tensors
  std::string why_none;

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static RankDevice of(const Json& json);
};

// Returns "nccl" if each rank has its own GPU and all ranks have the same library. Otherwise returns "gloo", which carries a
// GPU's tensors through host memory. The reason is one line. Throws ConfigError if `wish` is "nccl" and that is impossible;
// "gloo" and "auto" always work. Equal arguments give the same result on all ranks.
[[nodiscard]] Chosen<std::string> choose_transport(const std::vector<RankDevice>& ranks, const std::string& wish);

}  // namespace millrace::distributed
