// Metrics of a run as sums that stay on the device until they are read.
//
// In a recipe:
//
//   void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
//     board.add_classification(result.outputs().at("logits"), batch["label"], {.classes = {"cat", "dog", "owl"}});
//   }
//
// gives accuracy, balanced_accuracy, macro_f1 and, in the logs but not in the console's line, recall/cat … f1/owl. More examples:
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
  // The names of the classes, in the order of their numbers; the same for each batch. Empty: the names are "0", "1", …, one for
  // each logit, or for booleans "false" and "true".
  std::vector<std::string> classes = {};
  std::int64_t top_k = 0;            // if at least 2, top<k>_accuracy is also computed, which needs logits
  std::int64_t ignore_index = -100;  // labels with this value are not counted
  bool per_class = true;             // adds the quiet metrics recall/<class>, precision/<class> and f1/<class>
  std::string name = "";             // for example "left": all names then begin with "left/"
  [[nodiscard]] std::string prefix() const { return name.empty() ? "" : name + "/"; }
};

// Metrics by name. Arguments of add…() are detached and may be on any device. No add…() waits for the device; means() and
// tables() read all sums back with one copy. A name belongs to one kind of metric; a call with that name for another kind throws
// RecipeError. If shapes or types of tensors do not fit, add…() throws a DataError that shows them.
class Board {
 public:
  // Adds to the metric `name`, whose value is the sum of all its sums divided by the sum of all its counts. `sum` and `count`
  // are scalars of any number type; otherwise throws RecipeError with name and shape.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  // As add(), but the metric's value is the natural logarithm of the mean, taken when the value is read.
  void add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  // Adds a loss. If the loss has one term, of weight 1, adds that term's sum and count, or those of LossTerm::report if it is
  // set. Otherwise adds the total (the sum of weight * mean over the terms with a count), and each term as "<name>/<term>". A
  // loss without terms adds nothing.
  void add(std::string_view name, const Loss& loss);
  // Adds all values of a tensor of any shape; the metric is their mean.
  void add_mean(std::string_view name, const at::Tensor& values);
  // Adds the values at which `defined`, a tensor of booleans of the same shape, is true; the metric is the mean of these values.
  // The metric "<name>/left_out" counts the other values and is quiet while it is 0.
  void add_mean(std::string_view name, const at::Tensor& values, const at::Tensor& defined);
  // Adds booleans of any shape; the metric is the share of true values.
  void add_rate(std::string_view name, const at::Tensor& hits);
  // Adds values x and y of the same shape; the metric is Pearson's r of all of them, NaN if x or y is constant.
  void add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y);
  // Adds values of the same shape. The metrics over all values are "mae" (mean absolute error), "rmse" (root of the mean squared
  // error), "r2" (coefficient of determination, 1 - squared error / squared distance of the targets from their mean; NaN if all
  // targets are equal) and "pearson" (Pearson's r). With `name` the metrics' names begin with "<name>/".
  void add_regression(const at::Tensor& predicted, const at::Tensor& target, std::string_view name = "");
  // Adds predicted and true classes. The metrics are "accuracy", "balanced_accuracy" (mean recall of the classes that have
  // labels), "macro_f1" (mean f1 of the classes that have labels or predictions), and recall, precision and f1 of each class. If
  // top_k is set, there is also "top<k>_accuracy". tables() returns the table of the counts.
  //   predicted  logits [..., K] of any float type: the class is that of the largest logit (the first of equal ones); or class
  // ids
  //              [...] as integers or booleans
  //   labels     class ids [...], integers or booleans
  // If a row of logits holds a NaN, all of these metrics are NaN. A label or id outside 0..K-1 is found only when it is read:
  // means() and tables() then throw a DataError with name and value. Takes 8 bytes on the device for each of K * K counts; at
  // most 4,096 classes.
  void add_classification(const at::Tensor& predicted, const at::Tensor& labels, const Classification& how = {});
  // Adds counts of events (spikes, photons) and predicted rates. The metric is the information that the rates carry about the
  // counts, beyond the mean count of each unit: Poisson information in bits per event (Pillow et al. 2008, Nature 454:995;
  // difference of log-likelihoods over the events and ln 2).
  //   counts, rates, mask   [rows, units], floats; rates in events a bin, above -1e-8; mask 1 counts, 0 does not
  // Per unit, summed over all batches: T = sum mask, N = sum mask y, m = N / T, and
  //   bits = sum mask ((y ln(r + 1e-8) - r) - (y ln(m + 1e-8) - m)) / (N ln 2)
  // A unit with T = 0 or N = 0 has no bits per event and is left out; bits below 0 count as 0. Metric `name`, quiet, is the mean
  // over the units. Metric `overall` is the mean over all names added with this `overall`. Both are NaN if no unit counts. Three
  // more metrics count units over all these names. "<overall>/units" counts the units that are not left out, and
  // "<overall>/units_left_out" the units that are; both are quiet while no unit is left out. "<overall>/units_below_0", which is
  // always quiet, counts the units that count as 0.
  void add_bits_per_event(std::string_view name, const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask,
                          std::string_view overall);
  // Adds the contents of another board, as if all of them had been added here. Throws RecipeError if a name of `other` belongs
  // to another kind of metric in this board.
  void add(const Board& other);
  // Leaves the names that match `pattern` out of the console's lines (Means::shown_on_console). A star at the pattern's end
  // stands for any text.
  void quiet(std::string_view pattern) { quiet_.emplace(pattern); }
  // These two functions state which value of a metric is the best, for summary.json and reports. Patterns are as in quiet(); if
  // several match a name, the longest applies. No call is needed for losses (lowest), for the metrics of add_regression,
  // add_classification, add_correlation and add_bits_per_event, and for snapshot.best_metric, whose direction is
  // snapshot.best_is.
  void lowest_is_best(std::string_view pattern) { best_is_.insert_or_assign(std::string(pattern), Means::BestIs::lowest); }
  void highest_is_best(std::string_view pattern) { best_is_.insert_or_assign(std::string(pattern), Means::BestIs::highest); }

  // The means, in the order in which the names were first added. A mean is NaN if its count is zero.
  [[nodiscard]] Means means() const;
  // The tables of counts, one for each add_classification(), in the order in which they were added.
  [[nodiscard]] std::vector<Confusion> tables() const;
  // All sums as exact JSON numbers, so that a mean continues unchanged after a snapshot. Waits for the device.
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // replaces the contents; throws SnapshotError if state() can't have written the JSON
  void reset();
  // Adds up the sums of all ranks, so that the means are those of the whole run. Names are in the order of the first rank that
  // has them. Collective; waits for the device.
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
    std::string name;  // the metric's name; for a classification the name of its table
    Reading reading = Reading::mean;
    // The metric's sums, on the device. Most kinds of metrics have f64 scalars, which sums_of() lists. A total has three for
    // each term: sum, count, weight * count. A classification has integers: K * K counts, ignored labels, ids that are not a
    // class, rows with NaN; hits of top k; the largest of -label, label, -id, id.
    std::vector<at::Tensor> parts;
    std::vector<std::string> terms = {};  // names of a total's terms
    std::vector<Reading> readings = {};   // the kind of each term: mean or log_mean
    Classification how = {};
    std::string overall = {};  // for bits per event; `parts` then holds 4 sums for each unit: mask, mask y, mask y ln r, mask r
  };
  static std::string_view word_of(Reading reading);
  static std::size_t sums_of(Reading reading);
  static double read(Reading reading, const double* value);
  static double read(const Entry& entry, const double* value);
  static Confusion table_of(const Entry& entry, const double* value);
  static void put(Means& means, const Entry& entry, const double* value);
  static Json saved_of(const Entry& entry, const double* value);
  // Summary of the units of an add_bits_per_event().
  struct UnitCounts {
    double mean = std::numeric_limits<double>::quiet_NaN();  // mean bits per event of the units that count
    // Numbers of units: those that count; those left out, because they have no event or no bin; those below 0, which count as 0.
    std::int64_t units = 0, left_out = 0, below_0 = 0;
    bool moved = false;  // the previous definition of the metric (Means::MetricVersion) gives another number
  };
  static UnitCounts information_of(const Entry& entry, const double* sums);

  Entry& entry_of(std::string_view name, Reading reading);
  Entry& classification_of(const Classification& how);  // `how` must name all classes
  void add(std::string_view name, Reading reading, const std::vector<at::Tensor>& values);
  void add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values);
  void add_counts(const Entry& other);
  void add_information(std::string_view name, std::string_view overall, const at::Tensor& sums);
  void add_saved(const SavedJson& state);
  void add_saved(std::string_view name, const SavedJson& saved);
  void add_saved_classification(const SavedJson& saved);
  void add_saved_information(std::string_view name, const SavedJson& saved);
  // All parts in one list on the host, with the position of each entry.
  struct Host {
    std::vector<double> values;
    std::vector<std::size_t> first;
    [[nodiscard]] const double* of(std::size_t entry) const { return values.data() + first[entry]; }
  };
  [[nodiscard]] Host read_back() const;
  void put_information(Means& means, const Host& host) const;
  void know(std::string_view pattern, BestIs best_is);  // sets a pattern's direction unless the pattern has one

  std::vector<Entry> entries_;
  Means::Patterns quiet_;
  Means::Directions best_is_;
};

}  // namespace millrace::metrics
