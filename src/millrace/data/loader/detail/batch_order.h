// Which samples a batch holds: a pure function of the options, the epoch and the position, so that a run resumes anywhere and
// ranks take disjoint parts of the same global batch. Torch-free, no threads of its own; const calls are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/loader/detail/draws.h"
#include "millrace/data/loader/detail/order.h"
#include "millrace/data/loader/loader.h"

namespace millrace::data::detail {

struct BatchOrderOptions {
  Grouping grouping = Grouping::each;
  std::optional<std::int64_t> samples_per_epoch = {};  // of a mix
  std::int64_t batch_size = 1;  // rows per rank: of each data set that has none of its own, or of all when they are mixed
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int rank = 0;
  int world_size = 1;
};

// A row of a mixed batch.
struct MixedRow {
  std::size_t group = 0;
  std::int64_t index = 0;
};

class BatchOrder {
 public:
  // ConfigError for batch sizes and weights that do not go with the grouping, and for weights of epoch 0 that are none.
  BatchOrder(const std::vector<Dataset>& datasets, BatchOrderOptions options);

  [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }  // of an epoch
  [[nodiscard]] bool mixes() const noexcept { return options_.grouping == Grouping::mix; }
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;              // over all data sets and ranks
  [[nodiscard]] std::int64_t rows_before(std::int64_t count) const noexcept;  // of this rank in batches [0, count)
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;                 // of this rank in a full batch
  [[nodiscard]] std::int64_t most_rows(std::size_t group) const noexcept;     // of this rank in a batch
  [[nodiscard]] std::uint64_t seed(std::size_t group) const noexcept { return sets_[group].seed; }

  // Positions of this rank in a batch of the epoch: of one data set, or when they are mixed of all.
  [[nodiscard]] RowRange rows(std::size_t group, std::int64_t batch) const noexcept;
  [[nodiscard]] RowRange mixed_rows(std::int64_t batch) const noexcept;
  // What stands at positions first, first + 1, ... of an epoch. Throw what weights() throws, and ConfigError when its result is
  // none; not without weights.
  void fill(std::size_t group, std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> indices) const;
  void fill_mixed(std::uint64_t epoch, std::int64_t first, std::span<MixedRow> places) const;
  // Another sample of the data set instead of a bad one, drawn as its samples are.
  [[nodiscard]] std::int64_t replacement(std::size_t group, std::uint64_t epoch, std::uint64_t position,
                                         std::uint64_t attempt) const;

  // What must be the same for a resume beside seed, batch size over all ranks, shuffle and drop_last; "" for one data set, and
  // for several as Grouping::each without batch sizes or weights of their own.
  [[nodiscard]] const std::string& order_text() const noexcept { return order_text_; }
  [[nodiscard]] std::vector<DatasetPlan> dataset_plans() const;

 private:
  struct Set {
    std::string name;
    std::int64_t size = 0;   // samples
    std::int64_t first = 0;  // of them, counted over all data sets
    BatchSlices slices;
    std::uint64_t seed = 0;
    std::optional<double> weight;
    SampleWeights weights;
  };
  // How samples are drawn in an epoch; what is empty is not drawn but permuted.
  struct Draws {
    std::uint64_t epoch = 0;
    std::vector<std::optional<DrawTable>> samples;  // by data set
    std::vector<std::uint32_t> prints;              // of the weights, by data set
    std::vector<double> shares;                     // of data sets in a mix
    std::optional<DrawTable> share_table;
  };

  void check(const std::vector<Dataset>& datasets) const;
  void lengthen();
  [[nodiscard]] std::shared_ptr<const Draws> draws_of(std::uint64_t epoch) const;
  [[nodiscard]] std::shared_ptr<const Draws> make_draws(std::uint64_t epoch) const;
  [[nodiscard]] std::string make_order_text() const;
  [[nodiscard]] std::string rule_of(std::size_t group) const;
  [[nodiscard]] std::string label(const Set& set) const;

  const BatchOrderOptions options_;
  std::vector<Set> sets_;
  std::int64_t all_ = 0;  // samples of all data sets
  BatchSlices mixed_;
  std::int64_t batches_ = 0;
  bool has_weights_ = false;  // some data set has weights
  std::string order_text_;
  mutable std::mutex mutex_;
  // Epochs that readers are at: two, and more when they are shorter than what is read ahead.
  mutable std::array<std::shared_ptr<const Draws>, 3> recent_;
};

}  // namespace millrace::data::detail
