#include "millrace/train/split.h"

#include <algorithm>
#include <utility>

namespace millrace {

std::int64_t parts_of(const Batch& batch, std::int64_t wish) {
  std::int64_t parts = std::max<std::int64_t>(wish, 1);
  for (const Group& group : batch.groups()) parts = std::min(parts, std::max<std::int64_t>(group.rows(), 1));
  return parts;
}

Batch part_of(const Batch& batch, std::int64_t i, std::int64_t parts) {
  std::vector<Group> groups;
  for (const Group& from : batch.groups()) {
    const std::int64_t begin = from.rows() * i / parts;
    const std::int64_t end = from.rows() * (i + 1) / parts;
    Group group;
    group.name = from.name;
    for (const auto& [name, tensor] : from.fields) group.fields.emplace(name, tensor.narrow(0, begin, end - begin));
    group.positions.assign(from.positions.begin() + begin, from.positions.begin() + end);
    groups.push_back(std::move(group));
  }
  return Batch(std::move(groups), batch.epoch());
}

Batch take_part(Batch& batch, std::int64_t i, std::int64_t parts) {
  return parts == 1 ? std::move(batch) : part_of(batch, i, parts);
}

}  // namespace millrace
