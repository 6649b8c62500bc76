#include "millrace/train/step/micro_batches.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "millrace/train/step/draws.h"
#include "millrace/train/step/feed.h"

namespace millrace {

std::int64_t micro_batches_of(const Batch& batch, std::int64_t wish) {
  std::int64_t most = 1;
  for (const Group& group : batch.groups()) most = std::max(most, group.rows());
  return std::clamp<std::int64_t>(wish, 1, most);
}

Batch micro_batch(const Batch& batch, std::int64_t i, std::int64_t count) {
  std::vector<Group> groups;
  for (const Group& from : batch.groups()) {
    const std::int64_t begin = from.rows() * i / count;
    const std::int64_t end = from.rows() * (i + 1) / count;
    Group group;
    group.name = from.name;
    for (const auto& [name, tensor] : from.fields) group.fields.emplace(name, tensor.narrow(0, begin, end - begin));
    group.positions.assign(from.positions.begin() + begin, from.positions.begin() + end);
    if (!from.indices.empty()) group.indices.assign(from.indices.begin() + begin, from.indices.begin() + end);
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), batch.origin());
}

std::int64_t for_each_micro_batch(const BatchContext& context, Batch batch, const MicroBatchVisitor& visit) {
  const std::int64_t rows = batch.rows();
  if (rows == 0) return 0;
  const std::int64_t count = micro_batches_of(batch, context.micro_batches);
  const auto hand_on = [&](Batch micro, MicroPosition place) {
    {
      std::optional<telemetry::Span> span;
      if (context.timeline != nullptr) span.emplace(*context.timeline, telemetry::Phase::prepare);
      seed_draws(context.device, context.seed, Draws::prepare, micro);
      micro = context.recipe.prepare(std::move(micro));
    }
    visit(std::move(micro), place);
  };
  if (count == 1) {  // a whole batch is moved, so that prepare() may free its fields
    hand_on(std::move(batch), {.only = true, .last = true});
    return rows;
  }
  for (std::int64_t i = 0; i < count; ++i) hand_on(micro_batch(batch, i, count), {.only = false, .last = i + 1 == count});
  return rows;
}

std::int64_t for_each_micro_batch(const BatchContext& context, data::HostBatch host, const MicroBatchVisitor& visit) {
  return for_each_micro_batch(context, to_batch(std::move(host), context.split, context.device), visit);
}

}  // namespace millrace
