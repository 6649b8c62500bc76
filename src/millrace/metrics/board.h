// Sums that stay on the device until someone asks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/core/batch.h"
#include "millrace/core/saved_json.h"

namespace millrace::metrics {

// Weighted means by name. add() never waits for the device; means() reads everything back with one copy.
class Board {
 public:
  // mean of `name` += sum / count. Both scalars (any float type), detached by add(). The tensors may live on any device.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  // The natural logarithm of the mean, taken when it is read.
  void add_log(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  // What a loss reports, or its sum over its count.
  void add(std::string_view name, const Loss& loss);
  // Pearson's r of all values of x and y together, which have one shape; NaN where one of them is constant.
  void add_correlation(std::string_view name, const at::Tensor& x, const at::Tensor& y);
  [[nodiscard]] std::map<std::string, double> means() const;  // NaN where the count is zero
  // All sums as JSON numbers, exact: a mean that spans a snapshot goes on as if nothing had happened. Waits for the device.
  [[nodiscard]] Json state() const;
  void load_state(const SavedJson& state);  // replaces what is there; SnapshotError for what state() does not write
  void reset();
  [[nodiscard]] bool empty() const noexcept { return sums_.empty(); }

 private:
  enum class Reading : std::uint8_t { mean, log_mean, correlation };
  struct Sums {
    Reading reading = Reading::mean;
    std::vector<at::Tensor> parts;  // f64 scalars: sum, count; or count, x, y, xx, yy, xy
  };
  void add(std::string_view name, Reading reading, std::vector<at::Tensor> values);
  static double read(Reading reading, const double* value);
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace millrace::metrics
