// Decides which samples a batch holds. The result depends only on the options, the epoch and the position in the epoch. So a run
// can resume anywhere, and ranks take disjoint parts of the same global batch. Uses neither LibTorch nor threads; const
// functions are thread-safe.
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
  std::optional<std::int64_t> samples_per_epoch = {};  // samples in an epoch; used only by Grouping::mix
  // The number of a rank's rows in a batch: from each data set that sets no batch size of its own or, with Grouping::mix, from
  // all data sets together.
  std::int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;
  std::uint64_t seed = 0;
  int rank = 0;
  int world_size = 1;
};

// The sample in a row of a mixed batch (Grouping::mix).
struct MixedRow {
  std::size_t group = 0;
  std::int64_t index = 0;
};

class BatchOrder {
 public:
  // Throws ConfigError for batch sizes and weights that do not fit the grouping, and for invalid weights in epoch 0.
  BatchOrder(const std::vector<Dataset>& datasets, BatchOrderOptions options);

  [[nodiscard]] std::int64_t batches() const noexcept { return batches_; }  // number of batches in an epoch
  [[nodiscard]] bool mixes() const noexcept { return options_.grouping == Grouping::mix; }
  [[nodiscard]] std::int64_t samples_per_epoch() const noexcept;              // number of samples, over all data sets and ranks
  [[nodiscard]] std::int64_t rows_before(std::int64_t count) const noexcept;  // this rank's number of rows in batches [0, count)
  [[nodiscard]] std::int64_t rows_per_batch() const noexcept;                 // number of this rank's rows in a full batch
  [[nodiscard]] std::int64_t most_rows(std::size_t group) const noexcept;     // the largest number of rows of `group` in a batch
  [[nodiscard]] std::uint64_t seed(std::size_t group) const noexcept { return sets_[group].seed; }

  // Return this rank's positions in the epoch for a batch: rows() for one data set, mixed_rows() for the whole mix.
  [[nodiscard]] RowRange rows(std::size_t group, std::int64_t batch) const noexcept;
  [[nodiscard]] RowRange mixed_rows(std::int64_t batch) const noexcept;
  // Writes the samples at the positions first, first + 1, ... of an epoch. If the data set has weights, throws what weights()
  // throws, or ConfigError if the result of weights() is invalid.
  void fill(std::size_t group, std::uint64_t epoch, std::int64_t first, std::span<std::int64_t> indices) const;
  void fill_mixed(std::uint64_t epoch, std::int64_t first, std::span<MixedRow> places) const;
  // Draws another sample of the data set in place of a bad one: by weight if the epoch's samples are drawn by weight, else
  // uniformly.
  [[nodiscard]] std::int64_t replacement(std::size_t group, std::uint64_t epoch, std::uint64_t position,
                                         std::uint64_t attempt) const;

  // Returns, as a text, the properties of the order that a resumed run must keep, except seed, batch size over all ranks,
  // shuffle and drop_last, which are compared separately. The text is "" for one data set, or several with Grouping::each, if no
  // batch sizes and no weights are set.
  [[nodiscard]] const std::string& order_text() const noexcept { return order_text_; }
  [[nodiscard]] std::vector<Loader::DatasetPlan> dataset_plans() const;

 private:
  struct Set {
    std::string name;
    std::int64_t size = 0;   // number of samples
    std::int64_t first = 0;  // index of the data set's first sample in the sequence of all data sets
    BatchSlices slices;
    std::uint64_t seed = 0;
    std::optional<double> weight;
    SampleWeights weights;
  };
  // The tables from which an epoch's samples are drawn by weight. An empty entry means that the samples of that data set are a
  // permutation.
  struct Draws {
    std::uint64_t epoch = 0;
    std::vector<std::optional<DrawTable>> samples;  // a table for each data set
    std::vector<std::uint32_t> prints;              // a hash of the weights of each data set
    std::vector<double> shares;                     // share of each data set in a mix
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
  std::int64_t all_ = 0;  // number of samples of all data sets
  BatchSlices mixed_;
  std::int64_t batches_ = 0;
  bool has_weights_ = false;  // true if any data set has weights
  std::string order_text_;
  mutable std::mutex mutex_;
  // The tables of the latest epochs. Readers work on two epochs at once, or on more if an epoch is shorter than the read-ahead.
  mutable std::array<std::shared_ptr<const Draws>, 3> recent_;
};

}  // namespace millrace::data::detail
