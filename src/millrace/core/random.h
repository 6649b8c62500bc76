// Keys for random numbers inside a step. A key depends only on the seed, the epoch, the row's position in the epoch's order and
// the call site. It does not depend on threads, timing, ranks, or how a batch is cut into micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "millrace/base/index_run.h"
#include "millrace/core/batch.h"

namespace millrace {

class SiteRecorder;

// The keys of a forward pass. The trainer makes a scope before each forward pass; layers that draw random numbers (dropout) read
// the innermost scope of their thread. Each next_site() call within a forward pass is a site; sites are numbered in the order of
// the calls.
//
// A site has one stream of random numbers for all rows of an epoch: row r uses the elements [r e, (r + 1) e) of the stream,
// where e is the number of elements in a row. So dropout drops the same elements of a row on any rank and in any micro-batch as
// in a single process with one large batch, even if other rows were left out. This holds for tensors whose first dimension runs
// over the batch's rows (or over equal pieces of each row, in order).
//
// Other tensors begin at element 0 of their site's stream. In a batch of several groups the rows of all groups are numbered
// together, because rows of two groups may have equal positions. In both cases the numbers are repeatable, but they depend on
// the micro-batches and ranks. RowScope can state the rows of a part of the forward pass.
class RandomScope {
 public:
  // One call of a layer that draws random numbers: its key, and the elements of the site's stream that the tensor uses.
  struct Site {
    std::uint64_t key = 0;
    std::int64_t first = 0;  // index of the tensor's first element in the stream; if `runs` is empty, the other elements follow
                             // it
    std::vector<IndexRun> runs = {};  // if not empty: the stream indices of all elements of the tensor, as consecutive runs
    // Address on the device where a kernel reads the key and the first element of each run; null unless the step is being
    // recorded for replay.
    const void* on_device = nullptr;
  };

  // The state of a scope. If a part of the forward pass is computed again, a scope made from a saved Position repeats the sites.
  struct Position {
    std::uint64_t seed = 0, epoch = 0, site = 0;
    std::vector<IndexRun> rows = {};  // positions in the epoch, in the order of the tensors' rows; if empty, they are unknown and
                                      // each site begins at element 0
    SiteRecorder* recorder = nullptr;  // set while the step is recorded for replay
  };

  explicit RandomScope(Position position) noexcept;
  RandomScope(std::uint64_t seed, const Batch& batch);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  // Returns the next site of the innermost scope, for a tensor of `elements` elements. Outside any scope the key is drawn from
  // ATen's default CPU generator. So a layer that is used alone draws the same numbers again after torch.manual_seed, as torch
  // users expect.
  [[nodiscard]] static Site next_site(std::int64_t elements);
  [[nodiscard]] static std::optional<Position> position();  // returns the innermost scope's position, or nullopt
  // Returns the site at this position, for a tensor of `elements` elements. Ignores `position.recorder`.
  [[nodiscard]] static Site site_at(const Position& position, std::int64_t elements);
  // Returns true while the innermost scope of this thread is recorded for replay. A value that the host computes meanwhile would
  // be the same in every replay.
  [[nodiscard]] static bool is_recorded() noexcept;

 private:
  friend class RowScope;
  Position position_;
  RandomScope* outer_;
};

// Stores the sites (RandomScope::Site) of a recorded step on the device. Each replay of the step reads them there, so that it
// draws the random numbers of its own rows and not those of the recorded rows.
class SiteRecorder {
 public:
  virtual ~SiteRecorder() = default;
  // Returns the site's address on the device (RandomScope::Site::on_device). The address stays valid as long as the recording.
  [[nodiscard]] virtual const void* place_of(const RandomScope::Position& position, std::int64_t elements) = 0;
};

// Returns the rows of a batch in the form that a RandomScope takes: their positions in the epoch or, for several groups,
// consecutive numbers.
[[nodiscard]] std::vector<IndexRun> rows_of(const Batch& batch);
[[nodiscard]] std::vector<IndexRun> runs_of(std::span<const std::int64_t> positions);

// While this object exists, the sites of the innermost scope draw the random numbers of the given rows. A recipe opens a
// RowScope around a part of the forward pass that computes only the rows of one group, or the rows of several groups in another
// order. Does nothing outside a RandomScope.
class RowScope {
 public:
  // Position of each row in the epoch's order (Group::positions), in the order of the tensors' rows.
  explicit RowScope(std::span<const std::int64_t> positions);
  ~RowScope();
  RowScope(const RowScope&) = delete;
  RowScope& operator=(const RowScope&) = delete;

 private:
  RandomScope* scope_;
  std::vector<IndexRun> rows_;  // the rows for which the scope drew before this object was made
};

}  // namespace millrace
