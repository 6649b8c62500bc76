// What the ranks of a run must have alike, what they share of a machine, and what rank 0 hands to the others. All of it is
// collective, and costs one process nothing.
#pragma once

#include <cstdint>

#include "millrace/config/schema.h"
#include "millrace/core/agreement.h"
#include "millrace/snapshot/snapshot.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// The program, its LibTorch, the instructions it uses, and the values of the config that can change a bit. DistributedError on
// all ranks names the ranks that differ, where they run and in what.
void check_alike(Agreement& agreement, const config::Schema& schema, const Json& config);

// What the training data holds; `data` as data::Loader::data_state() gives it. DistributedError names the ranks.
void check_same_data(Agreement& agreement, const Json& data);

// All parameters and buffers, to the bit. DistributedError names the ranks that are alone with theirs; of two ranks that differ
// nobody knows which is wrong.
void check_same_weights(Agreement& agreement, const torch::nn::Module& model, std::int64_t step);

struct CoreShare {
  int cores = 1;    // for this rank
  int sharers = 1;  // ranks that may run on the same cores, this one among them
};
// Ranks that were bound to cores of their own share with nobody. `cores`: those that this process may use.
[[nodiscard]] CoreShare core_share(Agreement& agreement, int cores);

// Rank 0's, on all ranks.
void share_content(Agreement& agreement, snapshot::Content& content);

}  // namespace millrace
