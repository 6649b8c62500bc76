// Sums that stay on the device until someone asks.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "millrace/base/json.h"

namespace millrace::metrics {

// Weighted means by name. add() never waits for the device; means() reads everything back with one copy.
class Board {
 public:
  // mean of `name` += sum / count. Both scalars (any float type), detached by add(). The tensors may live on any device.
  void add(std::string_view name, const at::Tensor& sum, const at::Tensor& count);
  void add(std::string_view name, double sum, double count);
  [[nodiscard]] std::map<std::string, double> means() const;  // sum / count; NaN where the count is zero
  // Sums and counts as JSON numbers, exact: a mean that spans a snapshot goes on as if nothing had happened. Waits for the
  // device.
  [[nodiscard]] Json state() const;
  void load_state(const Json& state);  // replaces what is there; members that are not {sum, count} are left out
  void reset();
  [[nodiscard]] bool empty() const noexcept { return sums_.empty(); }

 private:
  struct Sum {
    at::Tensor sum;    // f64 scalar
    at::Tensor count;  // f64 scalar
  };
  std::map<std::string, Sum, std::less<>> sums_;
};

}  // namespace millrace::metrics
