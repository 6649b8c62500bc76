// A running mean of the weights. The mean is often better than the last weights, and never influences the training.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "millrace/core/batch.h"
#include "millrace/optim/optimizer.h"

namespace millrace::optim {

// After each update average += (weight - average) * (1 - d) with d = min(decay, (1 + n) / (10 + n)), where n is the number of
// earlier updates. So the first weights do not dominate a short run. Buffers are not averaged. All values stay on the device.
class Average {
 public:
  // Keeps references to the parameters. The average starts at their present values.
  Average(const std::vector<ParameterGroup>& groups, double decay);

  void update(const at::Tensor& skip);  // `skip`: scalar f32 on the device; 1 = nothing changes

  // The averaged weights by parameter name. The next update changes these tensors, so copy them to keep their values.
  [[nodiscard]] const Tensors& weights() const noexcept { return weights_; }
  [[nodiscard]] const at::Tensor& updates() const noexcept { return updates_; }  // scalar f32: number of updates
  // Throws SnapshotError if a weight is missing or has another shape; then nothing is changed.
  void load(const Tensors& weights, const at::Tensor& updates);

 private:
  friend class AverageInUse;
  double decay_;
  std::vector<NamedParameter> parameters_;
  Tensors weights_;
  at::Tensor updates_;
};

// While this object exists, the parameters hold the averaged weights. No step and no load may happen meanwhile.
class AverageInUse {
 public:
  explicit AverageInUse(const Average& average);
  ~AverageInUse();
  AverageInUse(AverageInUse&& other) noexcept = default;
  AverageInUse(const AverageInUse&) = delete;
  AverageInUse& operator=(const AverageInUse&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> originals_;  // each parameter, and the memory of the parameter's own weights
};

}  // namespace millrace::optim
