// The words all subsystems speak: batches, losses, the state of a part of the run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

enum class Split : std::uint8_t { train, validation };

using Tensors = std::map<std::string, at::Tensor, std::less<>>;

// The part of a batch that comes from one data set of a grouped pipeline; a plain batch has one group.
struct Group {
  std::string name;                     // data set's name, "" for a plain batch
  Tensors fields;                       // name -> tensor, first dimension = rows
  std::vector<std::int64_t> positions;  // position of each row in the epoch's order: keys randomness, see core/random.h
  [[nodiscard]] std::int64_t rows() const noexcept { return static_cast<std::int64_t>(positions.size()); }
};

// One micro-step's data. Move-only. On the CPU its tensors are 64-byte aligned views of a loader slot, which goes back to the
// loader when the last of them dies; a tensor that must outlive the step is to be cloned.
class Batch {
 public:
  Batch() = default;
  explicit Batch(std::vector<Group> groups, std::uint64_t epoch = 0) : groups_(std::move(groups)), epoch_(epoch) {}
  explicit Batch(Tensors fields);  // one group; positions 0..rows-1
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Field of a plain batch. InternalError names the fields there are when it is missing.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const;
  void set(std::string name, at::Tensor value);  // in group 0
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::int64_t rows() const noexcept;  // over all groups
  [[nodiscard]] std::vector<Group>& groups() noexcept { return groups_; }
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }

 private:
  std::vector<Group> groups_;
  std::uint64_t epoch_ = 0;
};

// What logs and metrics show of a loss whose count says nothing to people.
struct LossReport {
  at::Tensor sum, count;   // scalars; added up over batches and ranks, then divided
  bool logarithm = false;  // show the natural logarithm of the quotient
};

// What a loss returns. The trainer divides the sum of all sums by the sum of all counts, once per step, so that ragged
// batches, accumulation and ranks cannot change the result.
struct Loss {
  at::Tensor sum;    // scalar with gradient
  at::Tensor count;  // scalar without gradient, on the loss's device; how many things `sum` adds up
  // Nominal count of a full micro-batch, known before the step without a read-back: backward runs on sum / nominal, so that
  // half precision never sees huge numbers. Any positive constant gives the same result in exact arithmetic.
  double nominal_count = 1.0;
  // Shown instead of sum / count. A log(S/N) loss has sum = S and count = S, detached: its gradient is exact over accumulation
  // and ranks, its quotient is always 1; it reports S, N and the logarithm.
  std::optional<LossReport> report = std::nullopt;
  Tensors outputs;  // detached by the trainer; handed to later objectives and to Recipe::measure
};

// Named tensors and a JSON value: what one part of a run (loader, optimiser, schedule, recipe) needs to go on exactly.
struct State {
  Tensors tensors;
  Json json = Json::object();
};

// Where this process stands among the processes of a run.
struct Ranks {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
};

}  // namespace millrace
