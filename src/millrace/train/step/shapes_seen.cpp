#include "millrace/train/step/shapes_seen.h"

namespace millrace {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  constexpr std::uint64_t kPrime = 0x100000001b3ULL;  // FNV-1a over 64-bit words
  return ((hash ^ value) * kPrime) ^ (hash >> 29U);
}

std::uint64_t hash_of(const Batch& batch) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const Group& group : batch.groups()) {
    if (group.rows() == 0) continue;
    for (const auto& [name, tensor] : group.fields) {
      hash = mixed(hash, static_cast<std::uint64_t>(tensor.dim()));
      for (std::int64_t axis = 1; axis < tensor.dim(); ++axis) hash = mixed(hash, static_cast<std::uint64_t>(tensor.size(axis)));
    }
  }
  return hash;
}

std::string text_of(const Batch& batch) {
  std::string text;
  for (const Group& group : batch.groups()) {
    for (const auto& [name, tensor] : group.fields) {
      if (tensor.dim() < 2) continue;
      text += (text.empty() ? "" : ", ") + name + " [*";
      for (std::int64_t axis = 1; axis < tensor.dim(); ++axis) text += ", " + std::to_string(tensor.size(axis));
      text += "]";
    }
  }
  return text;
}

}  // namespace

void ShapesSeen::see(const Batch& batch) {
  ++batches_;
  const std::uint64_t hash = hash_of(batch);
  if (hashes_.size() >= kMost || !hashes_.insert(hash).second) return;
  latest_ = text_of(batch);
}

}  // namespace millrace
