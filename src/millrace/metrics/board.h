// Sums that stay on the device until someone asks.
//
// In a recipe:
//
//   void measure(const Batch& batch, const StepResult& result, metrics::Board& board) override {
//     board.add_classification(result.outputs().at("logits"), batch["label"], {.classes = {"cat", "dog", "owl"}});
//   }
//
// gives accuracy, balanced_accuracy and, in the logs but not in the console's line, recall/cat … precision/owl; and
//
//   board.add_regression(result.outputs().at("predicted"), batch["y"]);  // mae, rmse, r2, pearson
//   board.add_mean("width", boxes.select(1, 2));                         // of all values
//   board.add_rate("sure", confidence > 0.9);                            // the share of true values
//   board.add("bits", loss.sum / std::numbers::ln2, loss.count);         // sums of the recipe's own
//   board.add_bits_per_event("bps/a", spikes, rates, mask, "bps");       // information about counts
//   board.quiet("band/*");                                               // these names: in the logs alone
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
  // One name for each class, in the order of their numbers. Empty: "0", "1", …, as many as the logits have; for booleans "false"
  // and "true". The same for each batch.
  std::vector<std::string> classes = {};
  std::int64_t top_k = 0;            // from 2 on: also top<k>_accuracy, which needs logits
  std::int64_t ignore_index = -100;  // labels of this value count nowhere
  bool per_class = true;             // recall/<class> and precision/<class>, quiet
  std::string name = "";             // "left": all names begin with "left/"
  [[nodiscard]] std::string prefix() const { return name.empty() ? "" : name + "/"; }
};

// Metrics by name. What add…() is given is detached and may live on any device. No add…() waits for the device; means() and
// tables() read everything back with one copy. A name belongs to one kind of metric: RecipeError where it is given to another.
// Tensors whose shapes or types do not fit are a DataError that shows them.
class Board {
 public:
  // The mean of `name` is the sum of all its sums over the sum of all its counts. Both are scalars (any number type);
  // RecipeError with name and shape where they are not.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  // The natural logarithm of the mean, taken when it is read.
  void add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  // A loss of one term of weight 1: what the term reports, or its sum over its count. Else the total, which is the sum of weight
  // * mean over the terms that counted anything, and each term as "<name>/<term>". A loss without terms adds nothing.
  void add(std::string_view name, const Loss& loss);
  // The mean of all values of a tensor of any shape.
  void add_mean(std::string_view name, const at::Tensor& values);
  // The mean of those that `defined`, booleans of the same shape, marks: the others have no number. Beside it "<name>/left_out",
  // quiet while it is 0, counts these.
  void add_mean(std::string_view name, const at::Tensor& values, const at::Tensor& defined);
  // The share of true values in a tensor of booleans.
  void add_rate(std::string_view name, const at::Tensor& hits);
  // Pearson's r of all values of x and y together, which have one shape; NaN where one of them is constant.
  void add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y);
  // Of all values of both together, which have one shape: mean absolute error "mae", root of the mean squared error "rmse",
  // coefficient of determination "r2" (1 - squared error / squared distance of the targets from their mean; NaN where all targets
  // are equal) and Pearson's r "pearson". With a name they begin with "<name>/".
  void add_regression(const at::Tensor& predicted, const at::Tensor& target, std::string_view name = "");
  // Counts which class was predicted for which: "accuracy", "balanced_accuracy" (the mean recall of the classes that have
  // labels), with top_k "top<k>_accuracy", recall and precision of each class, and a table of the counts, see tables().
  //   predicted  logits [..., K] of any float type, of which the largest counts (of equal ones the first), or class ids [...] as
  //              integers or booleans
  //   labels     class ids [...], integers or booleans
  // Where a row of logits holds a NaN, all of them are NaN.
  // A label or id outside 0..K-1 is found when it is read: means() and tables() then throw a DataError with name and value. Takes
  // 8 bytes on the device for each of K * K counts; at most 4,096 classes.
  void add_classification(const at::Tensor& predicted, const at::Tensor& labels, const Classification& how = {});
  // How much predicted rates tell of counts of events (spikes, photons), beyond the mean count of each unit: Poisson information
  // in bits per event (Pillow et al. 2008, Nature 454:995; the difference of log-likelihoods over the events and ln 2).
  //   counts, rates, mask   [rows, units], floats; rates in events a bin, above -1e-8; mask 1 counts, 0 does not
  // Per unit, summed over all batches: T = sum mask, N = sum mask y, m = N / T, and
  //   bits = sum mask ((y ln(r + 1e-8) - r) - (y ln(m + 1e-8) - m)) / (N ln 2)
  // A unit with T = 0 or N = 0 has no bits per event and counts nowhere; bits below 0 count as 0. Metric `name`, quiet, is the
  // mean over the units; metric `overall` the mean over all names given with this `overall`; each NaN where no unit counts.
  // Beside it over all names: "<overall>/units" that count, "<overall>/units_left_out" that don't, both quiet while all count,
  // and, quiet, "<overall>/units_below_0" that count as 0.
  void add_bits_per_event(std::string_view name, const at::Tensor& counts, const at::Tensor& rates, const at::Tensor& mask,
                          std::string_view overall);
  // All that another board holds, as if it had been given to this one. RecipeError where a name is of another kind here.
  void add(const Board& other);
  // Keeps names out of lines for people, see Means::shown_on_console. A star at the end of the pattern stands for any rest.
  void quiet(std::string_view pattern) { quiet_.emplace(pattern); }

  // In the order in which the names were first added. NaN where the count is zero.
  [[nodiscard]] Means means() const;
  // The counts of each add_classification, in the order of addition.
  [[nodiscard]] std::vector<Confusion> tables() const;
  // All sums as JSON numbers, exact: a mean that spans a snapshot goes on as if nothing had happened. Waits for the device.
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // replaces what is there; SnapshotError for what state() does not write
  void reset();
  // Adds up the sums of all ranks: the means are then those of the whole run. Names stand in the order of the first rank that has
  // them. Collective; waits for the device.
  void sum_over(Agreement& agreement);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

 private:
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
    std::string name;  // of a classification that of its table
    Reading reading = Reading::mean;
    // f64 scalars as sums_of() says; of a total 3 for each of `terms`: sum, count, weight * count. Of a classification integers:
    // K * K counts, what was ignored, what was no class, what had a NaN; hits of top k; the largest of -label, label, -id, id.
    std::vector<at::Tensor> parts;
    std::vector<std::string> terms = {};  // of a total
    std::vector<Reading> readings = {};   // theirs
    Classification how = {};
    std::string overall = {};  // of an information; its part holds 4 sums for each unit: mask, mask y, mask y ln r, mask r
  };
  static std::string_view word_of(Reading reading);
  static std::size_t sums_of(Reading reading);
  static double read(Reading reading, const double* value);
  static double read(const Entry& entry, const double* value);
  static Confusion table_of(const Entry& entry, const double* value);
  static void put(Means& means, const Entry& entry, const double* value);
  static Json saved_of(const Entry& entry, const double* value);
  // Of the units of an information.
  struct UnitCounts {
    double mean = std::numeric_limits<double>::quiet_NaN();  // of those that count
    std::int64_t units = 0, left_out = 0, below_0 = 0;       // that count; without an event or a bin; of the first, taken as 0
    bool moved = false;                                      // the version before gives another number
  };
  static UnitCounts information_of(const Entry& entry, const double* sums);

  Entry& entry_of(std::string_view name, Reading reading);
  Entry& classification_of(const Classification& how);  // with names for its classes
  void add(std::string_view name, Reading reading, const std::vector<at::Tensor>& values);
  void add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values);
  void add_counts(const Entry& other);
  void add_information(std::string_view name, std::string_view overall, const at::Tensor& sums);
  void add_saved(const SavedJson& state);
  void add_saved(std::string_view name, const SavedJson& saved);
  void add_saved_classification(const SavedJson& saved);
  void add_saved_information(std::string_view name, const SavedJson& saved);
  // All parts, one after the other, and the place in it of each entry.
  struct Host {
    std::vector<double> values;
    std::vector<std::size_t> first;
    [[nodiscard]] const double* of(std::size_t entry) const { return values.data() + first[entry]; }
  };
  [[nodiscard]] Host read_back() const;
  void put_information(Means& means, const Host& host) const;

  std::vector<Entry> entries_;
  Means::Patterns quiet_;
};

}  // namespace millrace::metrics
