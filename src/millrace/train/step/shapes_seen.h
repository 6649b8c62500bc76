// Remembers the shapes of a run's batches, without their numbers of rows.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "millrace/core/batch.h"

namespace millrace {

class ShapesSeen {
 public:
  static constexpr std::size_t kMost = 65'536;  // most shapes that are remembered; after that no shape counts as new

  void see(const Batch& batch);
  [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }
  [[nodiscard]] std::int64_t shapes() const noexcept { return static_cast<std::int64_t>(hashes_.size()); }
  [[nodiscard]] const std::string& latest() const noexcept { return latest_; }  // the newest shape: "x [*, 37, 64]"

 private:
  std::unordered_set<std::uint64_t> hashes_;
  std::int64_t batches_ = 0;
  std::string latest_;
};

}  // namespace millrace
