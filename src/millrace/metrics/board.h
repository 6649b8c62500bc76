// Sums that stay on the device until someone asks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/core/batch.h"
#include "millrace/core/saved_json.h"

namespace millrace::metrics {

// Weighted means by name. add() never waits for the device; means() reads everything back with one copy.
class Board {
 public:
  // The mean of `name` is the sum of all its sums over the sum of all its counts. Both are scalars (any float type), detached by
  // add(). The tensors may live on any device.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  // The natural logarithm of the mean, taken when it is read.
  void add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  // A loss of one term of weight 1: what the term reports, or its sum over its count. Else the total, which is the sum of weight
  // * mean over the terms that counted anything, and each term as "<name>/<term>". A loss without terms adds nothing.
  void add(std::string_view name, const Loss& loss);
  // Pearson's r of all values of x and y together, which have one shape; NaN where one of them is constant.
  void add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y);
  [[nodiscard]] std::map<std::string, double> means() const;  // NaN where the count is zero
  // All sums as JSON numbers, exact: a mean that spans a snapshot goes on as if nothing had happened. Waits for the device.
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // replaces what is there; SnapshotError for what state() does not write
  void reset();
  // Adds up the sums of all ranks: the means are then those of the whole run. Collective; waits for the device.
  void sum_over(Agreement& agreement);
  [[nodiscard]] bool empty() const noexcept { return sums_.empty(); }

 private:
  enum class Reading : std::uint8_t { mean, log_mean, correlation, total };
  struct Sums {
    Reading reading = Reading::mean;
    std::vector<at::Tensor> parts;        // f64 scalars: sum, count; or count, x, y, xx, yy, xy; or 3 for each of `terms`
    std::vector<std::string> terms = {};  // of a total: sum, count, weight * count
    std::vector<Reading> readings = {};   // theirs
  };
  void add(std::string_view name, Reading reading, std::vector<at::Tensor> values);
  void add_to_total(std::string_view name, std::string_view term, Reading reading, const std::vector<at::Tensor>& values);
  void add_saved(std::string_view name, const SavedJson& saved);
  static std::string_view word_of(Reading reading);
  static double read(Reading reading, const double* value);
  static double read(const Sums& entry, const double* value);
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace millrace::metrics
