// The loader's state as JSON. Every value is checked when it is read back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/json.h"
#include "millrace/data/loader/detail/batch_work.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

struct LoaderState {
  std::string fingerprint;
  std::uint64_t seed = 0;
  std::int64_t global_batch_size = 1;  // rows of a batch over all ranks; the order depends on this, not on the number of ranks
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t epoch = 0;
  std::uint64_t next_batch = 0;
  std::uint64_t bad_in_epoch = 0;
  std::string order;  // BatchOrder::order_text(), for grouped or weighted data sets
  Quarantine quarantine;
};

// Returns the fingerprint of the source if there is one data set; for several data sets, their names and fingerprints in order.
[[nodiscard]] std::string fingerprint_of(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const LoaderState& state);
// What is known about the data before fingerprints are compared: whether it is the data of the snapshot. If `unknown`, data with
// the same fingerprint counts as the same, and other data is accepted as changed.
enum class DataCheck : std::uint8_t { same, unknown, changed };

// Reads to_json()'s result. Throws SnapshotError if `json` is not a loader's state, or if its data, batches or order are not
// those of `current`; the message has both values. If `data` is changed, or if it is unknown and the fingerprints differ, the
// position is limited to the end of its epoch and the quarantine is emptied.
[[nodiscard]] LoaderState loader_state_from(const Json& json, const LoaderState& current, const BatchWork& work,
                                            DataCheck data = DataCheck::same);

}  // namespace millrace::data::detail
