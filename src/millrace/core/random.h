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

// One call of a layer that draws random numbers: its key, and which elements of the site's stream the tensor's elements are.
struct RandomSite {
  std::uint64_t key = 0;
  std::int64_t first = 0;           // of the tensor's first element; the others follow it, where `runs` is empty
  std::vector<IndexRun> runs = {};  // else all elements, run by run
};

// Set by the trainer before each forward pass, read by layers that draw random numbers (dropout). Thread-local: the loop's
// thread owns LibTorch. Each next_site() call within a forward pass is one site; the order of calls is the model's order.
//
// The stream of a site runs over the rows of an epoch: row r has elements [r e, (r + 1) e) of it, with e elements a row. So two
// ranks, or two micro-batches, drop what one process drops that has their rows in one batch, whichever rows of it were left out.
// It holds for tensors whose first dimension runs over the batch's rows (or over equal pieces of each row, in order); others have
// streams of their own too, but not those that one process would have. Nor has a batch of several groups, whose rows may have the
// same positions: it counts the rows of all groups together, and RowScope tells which are which.
class RandomScope {
 public:
  // Where a scope stands: a part of the forward pass that is computed a second time goes on from the same site.
  struct Position {
    std::uint64_t seed = 0, epoch = 0, site = 0;
    std::vector<IndexRun> rows =
        {};  // of the epoch, in the order of the tensors' rows; empty = not known: sites begin at element 0
  };

  explicit RandomScope(Position position) noexcept;
  RandomScope(std::uint64_t seed, const Batch& batch);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // The next site of the innermost scope, for a tensor of `elements` elements. Outside any scope the key is drawn from ATen's
  // default CPU generator, so that a layer used alone behaves as torch users expect (torch.manual_seed repeats it).
  [[nodiscard]] static RandomSite next_site(std::int64_t elements);
  [[nodiscard]] static std::optional<Position> position();  // of the innermost scope; nullopt outside any

 private:
  friend class RowScope;
  Position position_;
  RandomScope* outer_;
};

// Until destruction the sites of the innermost scope draw for these rows: a recipe opens one around a part of the forward pass
// that has the rows of one group of a grouped batch alone, or those of several groups in an order of its own. Does nothing
// outside a RandomScope.
class RowScope {
 public:
  // Position of each row in the epoch's order (Group::positions), in the order of the tensors' rows.
  explicit RowScope(std::span<const std::int64_t> positions);
  ~RowScope();
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;

 private:
  RandomScope* scope_;
  std::vector<IndexRun> rows_;  // of the scope before
};

}  // namespace millrace
