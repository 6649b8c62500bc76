// Brings a batch to the model in the same way for all uses: training, validation, trials, estimates and benches.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/step/micro_position.h"

namespace millrace {

// The number of micro-batches into which this batch is cut if `wish` are asked for; at least 1. Each gets a row of the largest
// group; a smaller group may lack rows in some of them.
[[nodiscard]] std::int64_t micro_batches_of(const Batch& batch, std::int64_t wish);

// Rows [r i / count, r (i + 1) / count) of each group of r rows: views, in the batch's order.
[[nodiscard]] Batch micro_batch(const Batch& batch, std::int64_t i, std::int64_t count);

// Settings and objects for the path of a batch to the model. Refers to objects that outlive it.
struct BatchContext {
  Recipe& recipe;
  telemetry::Timeline* timeline;  // Recipe::prepare counts as Phase::prepare; null = not recorded
  at::Device device;
  std::int64_t micro_batches = 1;  // parts that a batch is cut into
  Split split = Split::train;      // the split that host batches come from
  bool ahead = true;               // switchboard row "batch_ahead"
  std::uint64_t seed = 0;          // the run's seed: for random numbers that the recipe draws in prepare()
};

// Gets each prepared micro-batch, which has at least one row.
using MicroBatchVisitor = std::function<void(Batch batch, MicroPosition in_batch)>;

// Brings the batch to the device, cuts it, prepares each micro-batch and passes it on, in order. A group without rows, in a batch
// with other groups, reaches Recipe::prepare and losses as fields of zero rows. Returns the batch's rows: 0 if
// data.bad_samples=skip left it empty; then nothing is called.
std::int64_t for_each_micro_batch(const BatchContext& context, Batch batch, const MicroBatchVisitor& visit);
std::int64_t for_each_micro_batch(const BatchContext& context, data::HostBatch host, const MicroBatchVisitor& visit);

}  // namespace millrace
