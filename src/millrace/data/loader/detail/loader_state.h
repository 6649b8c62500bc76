// The loader's state as JSON; every value read back is checked.
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
  std::int64_t global_batch_size = 1;  // over all ranks: the order is independent of the number of ranks as long as this stays
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t epoch = 0;
  std::uint64_t next_batch = 0;
  std::uint64_t bad_in_epoch = 0;
  std::string order;  // for grouped or weighted data sets: BatchOrder::order_text()
  Quarantine quarantine;
};

// The source's own fingerprint for one data set; names and fingerprints in order for several.
[[nodiscard]] std::string fingerprint_of(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const LoaderState& state);
// Knowledge about the data in addition to its fingerprint. unknown: a different fingerprint need not mean different data.
enum class DataCheck : std::uint8_t { same, unknown, changed };

// SnapshotError if `json` is not a loader's state, or has other data, batches or order than `current`; both values are named. If
// the data is known to have changed, or `data` is unknown and the fingerprint differs, the position is limited to the end of its
// epoch and the quarantine is dropped.
[[nodiscard]] LoaderState loader_state_from(const Json& json, const LoaderState& current, const BatchWork& work,
                                            DataCheck data = DataCheck::same);

}  // namespace millrace::data::detail
