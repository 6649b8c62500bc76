// Keys for randomness inside a step: a pure function of seed, epoch, place in the epoch's order and call site, never of threads,
// timing, ranks, or how a batch is cut into micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "millrace/base/index_run.h"
#include "millrace/core/batch.h"

namespace millrace {

class SiteRecorder;

// Set by the trainer before each forward pass, read by layers that draw random numbers (dropout). Thread-local: the loop's
// thread owns LibTorch. Each next_site() call within a forward pass is one site; the order of calls is the model's order.
//
// The stream of a site runs over the rows of an epoch: row r has its elements [r e, (r + 1) e), with e elements a row. So ranks
// or micro-batches drop the same elements as one process with all of these rows in one batch, whichever rows were left out. This
// holds for tensors whose first dimension runs over the batch's rows (or over equal pieces of each row, in order). Other tensors,
// and batches of several groups, whose rows may have equal positions, have separate streams, but not those of one process; for
// groups the rows of all groups are counted together, and RowScope says which rows are which.
class RandomScope {
 public:
  // One call of a layer that draws random numbers: its key, and the elements of the site's stream that the tensor uses.
  struct Site {
    std::uint64_t key = 0;
    std::int64_t first = 0;  // index of the tensor's first element in the stream; the others follow it if `runs` is empty
    std::vector<IndexRun> runs = {};  // otherwise all elements, run by run
    // In a step that a device records: where a kernel finds key and first element of each run when it runs; else null.
    const void* on_device = nullptr;
  };

  // The position of a scope: if a part of the forward pass is computed again, it resumes from the same site.
  struct Position {
    std::uint64_t seed = 0, epoch = 0, site = 0;
    std::vector<IndexRun> rows =
        {};  // positions of the epoch, in the order of the tensors' rows; empty = unknown: sites begin at element 0
    SiteRecorder* recorder = nullptr;  // set while a device records the step
  };

  explicit RandomScope(Position position) noexcept;
  RandomScope(std::uint64_t seed, const Batch& batch);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // The next site of the innermost scope, for a tensor of `elements` elements. Outside any scope the key is drawn from ATen's
  // default CPU generator, so that a layer used alone behaves as torch users expect (torch.manual_seed repeats it).
  [[nodiscard]] static Site next_site(std::int64_t elements);
  [[nodiscard]] static std::optional<Position> position();  // position of the innermost scope; nullopt outside any
  // The site at this position, for a tensor of `elements` elements. `position.recorder` is not asked.
  [[nodiscard]] static Site site_at(const Position& position, std::int64_t elements);
  // Whether a device records what the innermost scope of this thread computes: then a value that the host computes here would be
  // the same in every later step.
  [[nodiscard]] static bool is_recorded() noexcept;

 private:
  friend class RowScope;
  Position position_;
  RandomScope* outer_;
};

// Keeps the sites of a step that a device records, so that later steps can draw the numbers of their own rows there.
class SiteRecorder {
 public:
  virtual ~SiteRecorder() = default;
  // Returns the site's place on the device: see RandomScope::Site::on_device. The place lives as long as the recording.
  [[nodiscard]] virtual const void* place_of(const RandomScope::Position& position, std::int64_t elements) = 0;
};

// Rows of a batch as positions of its epoch, as a RandomScope takes them.
[[nodiscard]] std::vector<IndexRun> rows_of(const Batch& batch);
[[nodiscard]] std::vector<IndexRun> runs_of(std::span<const std::int64_t> positions);

// Until destruction the sites of the innermost scope draw for these rows: a recipe opens one around a part of the forward pass
// that has only the rows of one group of a grouped batch, or rows of several groups in another order. Does nothing outside a
// RandomScope.
class RowScope {
 public:
  // Position of each row in the epoch's order (Group::positions), in the order of the tensors' rows.
  explicit RowScope(std::span<const std::int64_t> positions);
  ~RowScope();
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;

 private:
  RandomScope* scope_;
  std::vector<IndexRun> rows_;  // rows of the scope before
};

}  // namespace millrace
