// Brings a batch to the model in the same way for all uses: training, validation, trials, estimates and benchmarks.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/step/micro_position.h"

namespace millrace {

// The number of micro-batches into which this batch is cut if `wish` are requested; at least 1. Each micro-batch gets at least
// one row of the largest group; a smaller group may have no rows in some micro-batches.
[[nodiscard]] std::int64_t micro_batches_of(const Batch& batch, std::int64_t wish);

// Rows [r i / count, r (i + 1) / count) of each group, where r is the number of the group's rows. The rows are views, in the
// batch's order.
[[nodiscard]] Batch micro_batch(const Batch& batch, std::int64_t i, std::int64_t count);

// Settings and objects that bring a batch to the model. The referenced objects must outlive this object.
struct BatchContext {
  Recipe& recipe;
  telemetry::Timeline* timeline;  // records Recipe::prepare as Phase::prepare; null = not recorded
  at::Device device;
  std::int64_t micro_batches = 1;  // number of micro-batches that a batch is cut into
  Split split = Split::train;      // the split that host batches come from
  bool ahead = true;               // the switchboard's row "batch_ahead"
  std::uint64_t seed = 0;          // the run's seed, for random numbers that the recipe draws in prepare()
};

// Receives each prepared micro-batch, which has at least one row.
using MicroBatchVisitor = std::function<void(Batch batch, MicroPosition in_batch)>;

// Brings the batch to the device, cuts it, prepares each micro-batch and passes it to `visit`, in order. If one of several
// groups has no rows, Recipe::prepare and losses see its fields with zero rows. Returns the batch's number of rows. If
// data.bad_samples=skip left no rows, returns 0 and does not call `visit`.
std::int64_t for_each_micro_batch(const BatchContext& context, Batch batch, const MicroBatchVisitor& visit);
std::int64_t for_each_micro_batch(const BatchContext& context, data::HostBatch host, const MicroBatchVisitor& visit);

}  // namespace millrace
