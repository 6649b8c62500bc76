// Which way tensors travel between the ranks of a run.
#pragma once

#include <string>
#include <vector>

#include "millrace/core/agreement.h"

namespace millrace::distributed {

// What one rank computes on, and what could carry that device's tensors to the others.
struct RankDevice {
  std::string host;
  std::string gpu;      // on that host, by an identity that all processes there know; "" = it computes on its CPU
  std::string library;  // "NCCL 2.28.9"; "" = nothing carries them
  std::string why_none;

  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static RankDevice of(const Json& json);
};

// "nccl" where each rank has a GPU of its own and the same library, else "gloo", which carries tensors of a GPU by way of host
// memory; with the reason, one line. ConfigError where `wish` is "nccl" and can't be; "gloo" and "auto" always can. The same on
// all ranks that give the same.
[[nodiscard]] Chosen<std::string> choose_transport(const std::vector<RankDevice>& ranks, const std::string& wish);

}  // namespace millrace::distributed
