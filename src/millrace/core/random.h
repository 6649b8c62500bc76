// Keys for randomness inside a step: a pure function of seed, epoch, place in the epoch's order and call site, never of threads,
// timing, ranks, or how a batch is cut into micro-batches.
#pragma once

#include <cstdint>
#include <optional>

#include "millrace/core/batch.h"

namespace millrace {

// One call of a layer that draws random numbers: its key, and which element of the site's stream the tensor's first element is.
struct RandomSite {
  std::uint64_t key = 0;
  std::int64_t first = 0;
};

// Set by the trainer before each forward pass, read by layers that draw random numbers (dropout). Thread-local: the loop's
// thread owns LibTorch. Each next_site() call within a forward pass is one site; the order of calls is the model's order.
//
// The stream of a site runs over the rows of an epoch: row r has elements [r e, (r + 1) e) of it, with e elements a row. So two
// ranks, or two micro-batches, drop what one process drops that has their rows in one batch. It holds for tensors whose first
// dimension runs over the batch's rows (or over equal pieces of each row, in order); others have streams of their own too, but
// not those that one process would have. A batch of several groups counts the rows of all groups together: RowScope tells the
// groups apart.
class RandomScope {
 public:
  // Where a scope stands: a part of the forward pass that is computed a second time goes on from the same site.
  struct Place {
    std::uint64_t seed = 0, epoch = 0, site = 0;
    std::int64_t first_row = 0;  // of the epoch
    std::int64_t rows = 0;       // 0 = not known: sites begin at element 0
  };

  explicit RandomScope(const Place& place) noexcept;
  RandomScope(std::uint64_t seed, const Batch& batch) noexcept;
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // The next site of the innermost scope, for a tensor of `elements` elements. Outside any scope the key is drawn from ATen's
  // default CPU generator, so that a layer used alone behaves as torch users expect (torch.manual_seed repeats it).
  [[nodiscard]] static RandomSite next_site(std::int64_t elements);
  [[nodiscard]] static std::optional<Place> place() noexcept;  // of the innermost scope; nullopt outside any

 private:
  friend class RowScope;
  Place place_;
  RandomScope* outer_;
};

// Until destruction the sites of the innermost scope draw for the rows of one group of a grouped batch: a recipe opens one around
// the part of the forward pass that has this group's rows alone. Does nothing outside a RandomScope.
class RowScope {
 public:
  explicit RowScope(const Group& group) noexcept;
  ~RowScope();
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;

 private:
  RandomScope* scope_;
  std::int64_t first_row_ = 0, rows_ = 0;  // of the scope before
};

}  // namespace millrace
