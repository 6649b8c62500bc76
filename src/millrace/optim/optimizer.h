// Optimisers on fused kernels. Learning rate and step count are tensors, and an update takes no value from the host. So a step
// can be recorded and replayed, and a step whose gradients are not finite is skipped on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/core/agreement.h"
#include "millrace/core/batch.h"
#include "millrace/optim/config.h"

namespace millrace::optim {

struct NamedParameter {
  std::string name;
  at::Tensor value;
};

// Parameters that share settings. `learning_rate_scale` multiplies the schedule's rate. `weight_decay` replaces the config's
// value for all of these parameters; the setting decay_only_matrices then has no effect on them.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double learning_rate_scale = 1.0;
  std::optional<double> weight_decay;
};

// Properties of a step's gradients, as tensors on the device; these tensors are not read back.
struct StepReport {
  at::Tensor gradient_norm;  // scalar f32: norm of the divided gradient before clipping
  at::Tensor found_inf;      // scalar f32: 1 if gradient_norm or its square is not finite, otherwise 0
};

class Optimizer {
 public:
  // Keeps references to the parameters and reads their .grad in step(). All parameters must be on one device, and each may be
  // given only once. `fused=false` uses the plain path: a loop over tensors with ATen's operations and the same arithmetic. In
  // fp32 both paths agree within 1e-6 of the largest element after a step.
  //
  // With `shares`, which must outlive the optimiser, each rank keeps the moments of a part of the parameters and updates only
  // that part. The rank gets the new values of all other parameters from the ranks that own them, so apply() is collective. All
  // ranks must step with the same gradients. The weights equal those of a step without `shares`, to the bit (Rajbhandari et al.
  // 2020, ZeRO stage 1, by whole parameters).
  Optimizer(std::vector<ParameterGroup> groups, OptimConfig config, bool fused = true, Agreement* shares = nullptr);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Makes one update with the gradients g = .grad * nominal / count. The gradients are clipped first by value, then by norm
  // (torch's clip_grad_norm_). `nominal` and `count` are f32 scalars on the parameters' device; count 0 skips the step.
  // Parameters without a gradient stay unchanged. A skipped step leaves parameters, state and step counters as they are, to the
  // bit. Gradients may be overwritten but are not set to zero: see zero_grad(). Equals prepare(), then apply() with its
  // found_inf.
  StepReport step(const at::Tensor& nominal, const at::Tensor& count);
  // The two halves of step(), for a caller that has more reasons to skip a step. Call apply() after prepare(). apply() skips the
  // step if `skip` (scalar f32 on the device) is 1. `skip` must be 1 if found_inf is 1.
  StepReport prepare(const at::Tensor& nominal, const at::Tensor& count);
  void apply(const at::Tensor& skip);
  void set_learning_rate(double learning_rate);  // sets the schedule's rate, which the groups' scales multiply
  void zero_grad();                              // drops the gradients
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const noexcept;

  // The state under the names "<parameter name>.<exp_avg|exp_avg_sq|momentum_buffer|step>", as in torch.optim. The next step
  // changes these tensors, so copy them to keep their values. With `shares`: this rank's part.
  [[nodiscard]] State state() const;
  // On rank 0 the state of all ranks; on the other ranks this rank's part. Collective if there are `shares`.
  [[nodiscard]] State whole_state() const;
  // Takes the state of all ranks, or of this rank. Throws SnapshotError if a tensor is missing, superfluous or of another shape
  // or dtype, or if the algorithm differs; then nothing is changed.
  void load_state(const State& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::optim
