// Checks values that must be equal on all ranks of a run, divides a machine among its ranks, and sends content from rank 0 to the
// other ranks. All functions are collective, and cost nothing in a single process.
#pragma once

#include <cstdint>

#include "millrace/config/schema.h"
#include "millrace/core/agreement.h"
#include "millrace/snapshot/snapshot.h"

namespace torch::nn {
class Module;
}

namespace millrace {

// Compares the program, its LibTorch, the instructions that LibTorch uses, and the config values that can change a bit. If a
// rank differs, all ranks throw a DistributedError that names the ranks that differ, their hosts and the differences.
void check_alike(Agreement& agreement, const config::Schema& schema, const Json& config);

// Compares the identity of the data. Both arguments are results of data::Loader::data_state(); `validation` is null if there is
// no validation. If ranks differ, throws a DistributedError that names them.
void check_same_data(Agreement& agreement, const Json& training, const Json& validation);

// Compares all parameters and buffers, to the bit. If ranks differ, throws a DistributedError that names the ranks in the
// minority. With two ranks there is no minority, so the error can't say which rank is wrong.
void check_same_weights(Agreement& agreement, const torch::nn::Module& model, std::int64_t step);

struct CoreShare {
  int cores = 1;    // cores for this rank
  int sharers = 1;  // ranks that may run on the same cores, including this one
};
// This rank's share of the machine: `cores`, the number of cores that this process may use, divided by the number of ranks that
// may run on exactly these cores.
[[nodiscard]] CoreShare core_share(Agreement& agreement, int cores);

// Replaces `content` on all ranks by rank 0's.
void share_content(Agreement& agreement, snapshot::Content& content);

}  // namespace millrace
