// Sums that stay on the device until they are read.
//
// In a recipe:
//
//   void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
//     board.add_classification(result.outputs().at("logits"), batch["label"], {.classes = {"cat", "dog", "owl"}});
//   }
//
// gives accuracy, balanced_accuracy, macro_f1 and, in the logs but not in the console's line, recall/cat … f1/owl; and
//
//   board.add_regression(result.outputs().at("predicted"), batch["y"]);  // mae, rmse, r2, pearson
//   board.add_mean("width", boxes.select(1, 2));                         // of all values
//   board.add_rate("sure", confidence > 0.9);                            // the share of true values
//   board.add("bits", loss.sum / std::numbers::ln2, loss.count);         // the recipe's own sums
//   board.add_bits_per_event("bps/a", spikes, rates, mask, "bps");       // information about counts
//   board.quiet("band/*");                                               // these names: only in the logs
//   board.lowest_is_best("width");                                       // so that a summary can say when it was best
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/core/batch.h"
#include "millrace/core/saved_json.h"
#include "millrace/metrics/confusion.h"
#include "millrace/metrics/means.h"

namespace millrace::metrics {

struct Classification {
  // A name for each class, in the order of their numbers; the same for each batch. Empty: "0", "1", …, one per logit; for
  // booleans "false" and "true".
  std::vector<std::string> classes = {};
  std::int64_t top_k = 0;            // if at least 2, also top<k>_accuracy, which needs logits
  std::int64_t ignore_index = -100;  // labels of this value are not counted
  bool per_class = true;             // recall/<class>, precision/<class> and f1/<class>, quiet
  std::string name = "";             // "left": all names begin with "left/"
  [[nodiscard]] std::string prefix() const { return name.empty() ? "" : name + "/"; }
};

// Metrics by name. Arguments of add…() are detached and may be on any device. No add…() waits for the device; means() and
// tables() read everything back with one copy. A name belongs to one kind of metric: RecipeError if it is used for another.
// Tensors whose shapes or types do not fit are a DataError that shows them.
class Board {
 public:
  // The mean of `name` is the sum of all its sums over the sum of all its counts. Both are scalars (any number type); otherwise
  // RecipeError with name and shape.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  // The natural logarithm of the mean, taken when it is read.
  void add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  // A loss of one term of weight 1 adds the term's sum over its count, or those of its report. Another loss adds the total, which
  // is the sum of weight * mean over the terms with a count, and each term as "<name>/<term>". A loss without terms adds nothing.
  void add(std::string_view name, const Loss& loss);
  // The mean of all values of a tensor of any shape.
  void add_mean(std::string_view name, const at::Tensor& values);
  // The mean of the values marked by `defined`, booleans of the same shape: the others have no value, and "<name>/left_out",
  // quiet while it is 0, counts them.
  void add_mean(std::string_view name, const at::Tensor& values, const at::Tensor& defined);
  // The share of true values in a tensor of booleans.
  void add_rate(std::string_view name, const at::Tensor& hits);
  // Pearson's r of all values of x and y together, which have the same shape; NaN if one of them is constant.
  void add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y);
  // Over all values of both, which have the same shape: mean absolute error "mae", root of the mean squared error "rmse",
  // coefficient of determination "r2" (1 - squared error / squared distance of the targets from their mean; NaN if all targets
  // are equal) and Pearson's r "pearson". With `name`, their names begin with "<name>/".
  void add_regression(const at::Tensor& predicted, const at::Tensor& target, std::string_view name = "");
  // Counts predicted against true classes: "accuracy", "balanced_accuracy" (the mean recall of the classes that have labels),
  // "macro_f1" (the mean f1 of the classes that have labels or predictions), with top_k "top<k>_accuracy", recall, precision and
  // f1 of each class, and a table of the counts, see tables().
  //   predicted  logits [..., K] of any float type, of which the largest counts (the first of equal ones), or class ids [...] as
  //              integers or booleans
  //   labels     class ids [...], integers or booleans
  // If a row of logits holds a NaN, all of these metrics are NaN.
  // A label or id outside 0..K-1 is found when it is read: means() and tables() then throw a DataError with name and value. Takes
  // 8 bytes on the device for each of K * K counts; at most 4,096 classes.
  void add_classification(const at::Tensor& predicted, const at::Tensor& labels, const Classification& how = {});
  // Information that predicted rates carry about counts of events (spikes, photons), beyond the mean count of each unit: Poisson
  // information in bits per event (Pillow et al. 2008, Nature 454:995; difference of log-likelihoods over the events and ln 2).
  //   counts, rates, mask   [rows, units], floats; rates in events a bin, above -1e-8; mask 1 counts, 0 does not
  // Per unit, summed over all batches: T = sum mask, N = sum mask y, m = N / T, and
  //   bits = sum mask ((y ln(r + 1e-8) - r) - (y ln(m + 1e-8) - m)) / (N ln 2)
  // A unit with T = 0 or N = 0 has no bits per event and is left out; bits below 0 count as 0. Metric `name`, quiet, is the mean
  // over the units; metric `overall` the mean over all names added with this `overall`; both are NaN if no unit counts. Three
  // metrics count the units of all these names: "<overall>/units" those that count and "<overall>/units_left_out" those that
  // don't, both quiet while all count, and "<overall>/units_below_0", always quiet, those that count as 0.
  void add_bits_per_event(std::string_view name, const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask,
                          std::string_view overall);
  // Adds all contents of another board, as if they had been added to this one. RecipeError if a name is of another kind here.
  void add(const Board& other);
  // Omits names from lines for people, see Means::shown_on_console. A star at the end of the pattern stands for any rest.
  void quiet(std::string_view pattern) { quiet_.emplace(pattern); }
  // Say which value of these metrics is the best, for summary.json and reports; patterns as in quiet(), and the longest one that
  // fits a name counts. Known without it: losses (lowest), what add_regression, add_classification, add_correlation and
  // add_bits_per_event measure, and snapshot.best_metric, for which snapshot.best_is decides.
  void lowest_is_best(std::string_view pattern) { best_is_.insert_or_assign(std::string(pattern), Means::BestIs::lowest); }
  void highest_is_best(std::string_view pattern) { best_is_.insert_or_assign(std::string(pattern), Means::BestIs::highest); }

  // The means, in the order in which the names were first added. NaN if the count is zero.
  [[nodiscard]] Means means() const;
  // The counts of each add_classification, in the order of addition.
  [[nodiscard]] std::vector<Confusion> tables() const;
  // All sums as JSON numbers, exact: a mean that spans a snapshot continues unchanged. Waits for the device.
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // replaces the contents; SnapshotError for what state() does not write
  void reset();
  // Adds up the sums of all ranks: the means are then those of the whole run. Names are in the order of the first rank that has
  // them. Collective; waits for the device.
  void sum_over(Agreement& agreement);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

 private:
  using BestIs = Means::BestIs;
  enum class Reading : std::uint8_t {
    mean,
    log_mean,
    root_mean,
    defined_mean,
    correlation,
    determination,
    total,
    classification,
    information
  };
  struct Entry {
    std::string name;  // name of the metric; for a classification, of its table
    Reading reading = Reading::mean;
    // f64 scalars as listed at sums_of(); for a total 3 per term: sum, count, weight * count. For a classification integers: K *
    // K counts, ignored labels, ids that are no class, rows with NaN; hits of top k; the largest of -label, label, -id, id.
    std::vector<at::Tensor> parts;
    std::vector<std::string> terms = {};  // names of a total's terms
    std::vector<Reading> readings = {};   // readings of the terms
    Classification how = {};
    std::string overall = {};  // for bits per event, whose part holds 4 sums per unit: mask, mask y, mask y ln r, mask r
  };
  static std::string_view word_of(Reading reading);
  static std::size_t sums_of(Reading reading);
  static double read(Reading reading, const double* value);
  static double read(const Entry& entry, const double* value);
  static Confusion table_of(const Entry& entry, const double* value);
  static void put(Means& means, const Entry& entry, const double* value);
  static Json saved_of(const Entry& entry, const double* value);
  // Summary of the units of one add_bits_per_event().
  struct UnitCounts {
    double mean = std::numeric_limits<double>::quiet_NaN();  // over the units that count
    // Numbers of units: those that count; those without an event or without a bin; those below 0, which count as 0.
    std::int64_t units = 0, left_out = 0, below_0 = 0;
    bool moved = false;  // the metric's previous version (Means::MetricVersion) gives another number
  };
  static UnitCounts information_of(const Entry& entry, const double* sums);

  Entry& entry_of(std::string_view name, Reading reading);
  Entry& classification_of(const Classification& how);  // `how` names all its classes
  void add(std::string_view name, Reading reading, const std::vector<at::Tensor>& values);
  void add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values);
  void add_counts(const Entry& other);
  void add_information(std::string_view name, std::string_view overall, const at::Tensor& sums);
  void add_saved(const SavedJson& state);
  void add_saved(std::string_view name, const SavedJson& saved);
  void add_saved_classification(const SavedJson& saved);
  void add_saved_information(std::string_view name, const SavedJson& saved);
  // All parts in one list, and the position of each entry in it.
  struct Host {
    std::vector<double> values;
    std::vector<std::size_t> first;
    [[nodiscard]] const double* of(std::size_t entry) const { return values.data() + first[entry]; }
  };
  [[nodiscard]] Host read_back() const;
  void put_information(Means& means, const Host& host) const;
  void know(std::string_view pattern, BestIs best_is);  // unless the recipe has said so

  std::vector<Entry> entries_;
  Means::Patterns quiet_;
  Means::Directions best_is_;
};

}  // namespace millrace::metrics
