// The loader's state as JSON: written plainly, read with distrust.
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
  std::int64_t global_batch_size = 1;  // over all ranks: the order survives another number of ranks while this stays
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t epoch = 0;
  std::uint64_t next_batch = 0;
  std::uint64_t bad_in_epoch = 0;
  std::string order;  // of grouped and weighted data sets: BatchOrder::order_text()
  Quarantine quarantine;
};

// The source's own for one data set; names and fingerprints in order for several.
[[nodiscard]] std::string fingerprint_of(const std::vector<Dataset>& datasets);
[[nodiscard]] Json to_json(const LoaderState& state);
// What is known of the data beside its fingerprint. unknown: another fingerprint need not mean other data.
enum class DataCheck : std::uint8_t { same, unknown, changed };

// SnapshotError when `json` is not a loader's state or is of other data, batches or order than `current`, both values named. When
// the data is known to have changed, or it is not known and the fingerprint is another, the state stands at most at the end of
// its epoch, and no quarantine is left.
[[nodiscard]] LoaderState loader_state_from(const Json& json, const LoaderState& current, const BatchWork& work,
                                            DataCheck data = DataCheck::same);

}  // namespace millrace::data::detail
