// Types that all subsystems share: batches, losses, and the state of a part of the run.
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

// Where a batch comes from.
struct BatchOrigin {
  Split split = Split::train;
  std::uint64_t epoch = 0;  // 0-based
  std::uint64_t index = 0;  // number of the batch in its epoch, 0-based
};

// The samples of a batch that come from one data set of a grouped pipeline; a plain batch has one group.
struct Group {
  std::string name;                     // data set's name, "" for a plain batch
  Tensors fields;                       // name -> tensor, first dimension = rows
  std::vector<std::int64_t> positions;  // each row's position in the epoch's order; part of the row's key in core/random.h
  std::vector<std::int64_t> indices;    // each row's sample in the data set; empty in a batch that no loader made
  [[nodiscard]] std::int64_t rows() const noexcept { return static_cast<std::int64_t>(positions.size()); }
};

// A batch as the loader delivers it, or a micro-batch: the rows of a batch that go through the model at once. Move-only. On the
// CPU its tensors are 64-byte aligned views of a loader slot. The slot returns to the loader when the last view is destroyed, so
// clone a tensor that must outlive the step.
class Batch {
 public:
  Batch() = default;
  explicit Batch(std::vector<Group> groups, BatchOrigin origin = {}) : groups_(std::move(groups)), origin_(origin) {}
  explicit Batch(Tensors fields);  // makes one group with the positions 0..rows-1
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Returns a field of a plain batch. If the field is missing, throws a RecipeError that lists the existing fields.
  [[nodiscard]] const at::Tensor& operator[](std::string_view name) const;
  void set(std::string name, at::Tensor value);  // sets a field of group 0
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::int64_t rows() const noexcept;  // number of rows over all groups
  [[nodiscard]] std::vector<Group>& groups() noexcept { return groups_; }
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }
  [[nodiscard]] const BatchOrigin& origin() const noexcept { return origin_; }
  [[nodiscard]] Split split() const noexcept { return origin_.split; }
  [[nodiscard]] std::uint64_t epoch() const noexcept { return origin_.epoch; }

 private:
  std::vector<Group> groups_;
  BatchOrigin origin_;
};

// One mean of a loss. Over the global batch of a step, the trainer adds up all sums and all counts of a term, and divides the
// total sum by the total count. So the division into batches, micro-batches and ranks can't change the result.
struct LossTerm {
  // Values that logs and metrics show instead of sum / count, for a term whose count means nothing to people.
  struct Report {
    at::Tensor sum, count;   // scalars; each is added up over batches and ranks, then `sum` is divided by `count`
    bool logarithm = false;  // true: show the natural logarithm of sum / count
  };

  at::Tensor sum;    // a scalar with a gradient
  at::Tensor count;  // scalar without gradient, on the device of `sum`: the number of things that `sum` adds up; may be 0
  // The usual count of a full micro-batch, which is known before the step without a read from the device. The backward pass
  // starts from sum / nominal_count, so that numbers stay small enough for half precision. Any positive constant gives the same
  // result in exact arithmetic.
  double nominal_count = 1.0;
  // Shown instead of sum / count. Example: a loss log(S/N) sets sum = S and count = S.detach(). The gradient of sum / count is
  // then exact over micro-batches and ranks, but the value is always 1, so the term reports S, N and the logarithm.
  std::optional<Report> report = std::nullopt;
  std::string name = "";  // unique within its loss; shown by logs if there are several terms
  double weight = 1.0;    // factor of this mean in the loss
  // Replaces `weight` if it is defined: a scalar f64 on the device, for a factor that changes from step to step
  // (StepContext::number).
  at::Tensor weight_now = {};
  // True if each row of a batch has the same count (of voxels, of tokens). All per_row terms of a loss share one backward pass.
  // Each other term needs a separate pass if its loss has several terms and the step has more than one micro-batch. A count that
  // contradicts per_row is a RecipeError: see reports_of() in train/step/stepper_report.h.
  bool per_row = false;
};

// The value that an objective minimises: the sum of weight * mean over its terms.
struct Loss {
  std::vector<LossTerm> terms;  // empty = the objective was absent; see Objective::loss
  Tensors outputs = {};         // detached by the trainer; passed to later objectives and to Recipe::measure
  [[nodiscard]] const LossTerm& term(std::string_view name = "") const;  // throws RecipeError if there is no term of that name
};

// Named tensors and a JSON value from which a part of a run (loader, optimiser, schedule, recipe) resumes exactly.
struct State {
  Tensors tensors;
  Json json = Json::object();
};

// Returns a text for messages: "image f32 [32,3,32,32], label i64 [32]"; for several groups "a: x f32 [4,3]; b: x f32 [4,5]".
[[nodiscard]] std::string to_text(const Tensors& tensors);
[[nodiscard]] std::string to_text(const Batch& batch);
[[nodiscard]] std::string to_text(const BatchOrigin& origin);  // "training batch 3 of epoch 0", "validation batch 2"

// The position of this process among the processes of a run.
struct Ranks {
  int rank = 0;
  int local_rank = 0;  // rank of this process among the processes on its machine
  int world_size = 1;
  int local_world_size = 1;  // number of processes on this machine, which share the machine's cores and memory
};

}  // namespace millrace
