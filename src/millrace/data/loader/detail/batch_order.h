// Decides which samples a batch holds: a pure function of the options, the epoch and the position, so that a run resumes anywhere
// and ranks take disjoint parts of the same global batch. Torch-free, no threads; const calls are thread-safe.
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
  std::optional<std::int64_t> samples_per_epoch = {};  // used only for a mix
  std::int64_t batch_size = 1;  // rows per rank, for each data set without its own size; for a mix, rows in all
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int rank = 0;
  int world_size = 1;
};

// The sample that fills one row of a mixed batch.
struct MixedRow {
  std::size_t group = 0;
  std::int64_t index = 0;
};

class BatchOrder {
 public:
  // ConfigError for batch sizes and weights that do not fit the grouping, and for invalid weights in epoch 0.
  BatchOrder(const std::vector<Dataset>& datasets, BatchOrderOptions options);

  [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }  // per epoch
  [[nodiscard]] bool mixes() const noexcept { return options_.grouping == Grouping::mix; }
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;              // over all data sets and ranks
  [[nodiscard]] std::int64_t rows_before(std::int64_t count) const noexcept;  // of this rank, in batches [0, count)
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;                 // of this rank, in a full batch
  [[nodiscard]] std::int64_t most_rows(std::size_t group) const noexcept;     // of this rank, in any batch
  [[nodiscard]] std::uint64_t seed(std::size_t group) const noexcept { return sets_[group].seed; }

  // Positions of this rank in a batch of the epoch: of one data set, or of all for a mix.
  [[nodiscard]] RowRange rows(std::size_t group, std::int64_t batch) const noexcept;
  [[nodiscard]] RowRange mixed_rows(std::int64_t batch) const noexcept;
  // The samples at positions first, first + 1, ... of an epoch. With weights, throw what weights() throws, and ConfigError if its
  // result is invalid.
  void fill(std::size_t group, std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> indices) const;
  void fill_mixed(std::uint64_t epoch, std::int64_t first, std::span<MixedRow> places) const;
  // Another sample of the data set to replace a bad one, drawn like its other samples.
  [[nodiscard]] std::int64_t replacement(std::size_t group, std::uint64_t epoch, std::uint64_t position,
                                         std::uint64_t attempt) const;

  // The properties that must stay the same for a resume, in addition to seed, batch size over all ranks, shuffle and drop_last;
  // "" for one data set, and for several with Grouping::each without their own batch sizes or weights.
  [[nodiscard]] const std::string& order_text() const noexcept { return order_text_; }
  [[nodiscard]] std::vector<Loader::DatasetPlan> dataset_plans() const;

 private:
  struct Set {
    std::string name;
    std::int64_t size = 0;   // samples
    std::int64_t first = 0;  // number of its first sample, counted over all data sets
    BatchSlices slices;
    std::uint64_t seed = 0;
    std::optional<double> weight;
    SampleWeights weights;
  };
  // How samples are drawn in an epoch. An empty entry means that samples are permuted, not drawn.
  struct Draws {
    std::uint64_t epoch = 0;
    std::vector<std::optional<DrawTable>> samples;  // by data set
    std::vector<std::uint32_t> prints;              // fingerprints of the weights, by data set
    std::vector<double> shares;                     // of the data sets in a mix
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
  bool has_weights_ = false;  // true if any data set has weights
  std::string order_text_;
  mutable std::mutex mutex_;
  // The epochs that readers currently read: two, or more if epochs are shorter than the read-ahead.
  mutable std::array<std::shared_ptr<const Draws>, 3> recent_;
};

}  // namespace millrace::data::detail
