// The way of a batch to the model, the same wherever batches are used: training, validation, trials, estimates and benches.
#pragma once

#include <cstdint>
#include <functional>

#include "millrace/core/batch.h"
#include "millrace/data/loader/loader.h"
#include "millrace/telemetry/spans.h"
#include "millrace/train/recipe/recipe.h"
#include "millrace/train/step/micro_position.h"

namespace millrace {

// How many micro-batches a wish comes to for this batch: each has a row of its largest group; a smaller group may have none in
// some of them. At least 1.
[[nodiscard]] std::int64_t micro_batches_of(const Batch& batch, std::int64_t wish);

// Rows [r i / count, r (i + 1) / count) of each group of r rows: views, in the batch's order.
[[nodiscard]] Batch micro_batch(const Batch& batch, std::int64_t i, std::int64_t count);

// All that a batch meets on its way. Refers to what outlives it.
struct BatchWay {
  Recipe& recipe;
  telemetry::Timeline* timeline;  // Recipe::prepare counts as Phase::prepare; null = it is not told apart
  at::Device device;
  std::int64_t micro_batches = 1;  // that a batch is cut into
  Split split = Split::train;      // that host batches come from
  bool ahead = true;               // switchboard row "batch_ahead"
  std::uint64_t seed = 0;          // of the run: what the recipe draws in prepare()
};

// A prepared micro-batch of at least one row.
using MicroBatchVisitor = std::function<void(Batch batch, MicroPosition in_batch)>;

// Brings the batch to the device, cuts it, prepares each micro-batch and hands it on, in order. Returns the batch's rows: 0 when
// data.bad_samples=skip left nothing of it; then nothing is called. A group without rows, of a batch that has others, is seen by
// Recipe::prepare and by losses as fields of zero rows.
std::int64_t for_each_micro_batch(const BatchWay& way, Batch batch, const MicroBatchVisitor& visit);
std::int64_t for_each_micro_batch(const BatchWay& way, data::HostBatch host, const MicroBatchVisitor& visit);

}  // namespace millrace
