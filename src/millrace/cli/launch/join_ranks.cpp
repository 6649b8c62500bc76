#include "millrace/cli/launch/join_ranks.h"

#include <cstdlib>

namespace millrace::cli {
namespace {

const char* variable(const char* name) { return std::getenv(name); }

}  // namespace

bool is_other_rank() {
  const auto rendezvous = distributed::rendezvous_of(variable);
  return rendezvous && rendezvous->ranks.rank != 0;
}

Joined join_ranks(const DistributedConfig& config) {
  const auto rendezvous = distributed::rendezvous_of(variable);
  Joined joined;
  joined.status = std::make_unique<distributed::StatusWriter>(variable, rendezvous ? rendezvous->ranks.local_rank : 0);
  if (!rendezvous) return joined;
  joined.processes = std::make_unique<distributed::Processes>(
      *rendezvous, distributed::ProcessesOptions{.join_s = static_cast<double>(config.join_timeout),
                                                 .timeout_s = static_cast<double>(config.timeout)});
  return joined;
}

void end_without_joining() {
  if (variable(distributed::kStatusVariable) == nullptr) return;  // no launcher started this process
  const auto rendezvous = distributed::rendezvous_of(variable);
  distributed::StatusWriter(variable, rendezvous ? rendezvous->ranks.local_rank : 0).done();
}

}  // namespace millrace::cli
