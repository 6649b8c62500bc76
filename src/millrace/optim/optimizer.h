// Optimisers on fused kernels, with learning rate and step count as tensors: no host value enters an update, so a step can be
// recorded and replayed, and a step whose gradients are not finite is skipped on the device.
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

// Parameters that share settings. `learning_rate_scale` multiplies the schedule's rate; `weight_decay` overrides the config's for
// all of them, with or without decay_only_matrices.
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double learning_rate_scale = 1.0;
  std::optional<double> weight_decay;
};

// Properties of a step's gradients, as device tensors; nothing is read back.
struct StepReport {
  at::Tensor gradient_norm;  // scalar f32: norm of the divided gradient before clipping
  at::Tensor found_inf;      // scalar f32: 1 if that norm or its square is not finite, else 0
};

class Optimizer {
 public:
  // Keeps references to the parameters (their .grad is read at step()), all on one device, each given once. `fused=false` runs
  // the plain path: a per-tensor loop of ATen ops with the same arithmetic; in fp32 both agree within 1e-6 of the largest element
  // after a step.
  //
  // With `shares` (which must outlive the optimiser) each rank keeps the moments of some parameters only, updates these, and gets
  // the others' new values from the ranks that own them, so apply() is collective; all ranks must step with the same gradients.
  // The weights equal those of a step without shares, to the bit (Rajbhandari et al. 2020, ZeRO stage 1, by whole parameters).
  Optimizer(std::vector<ParameterGroup> groups, OptimConfig config, bool fused = true, Agreement* shares = nullptr);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update with gradients g = .grad * nominal / count (both scalars f32 on the parameters' device; count 0 = skip), after
  // clipping: by value first, then by the norm of the result (torch's clip_grad_norm_). Parameters without a gradient stay
  // unchanged. A skipped step leaves parameters, state and step counters as they are, to the bit. Gradients may be overwritten
  // but are not set to zero: see zero_grad(). Equals prepare(), then apply() with its found_inf.
  StepReport step(const at::Tensor& nominal, const at::Tensor& count);
  // The two halves, for a caller with more reasons to skip a step: apply() follows its prepare() and skips if `skip` (scalar f32
  // on the device) is 1; `skip` must be 1 if found_inf is.
  StepReport prepare(const at::Tensor& nominal, const at::Tensor& count);
  void apply(const at::Tensor& skip);
  void set_learning_rate(double learning_rate);  // sets the schedule's rate, before group scales
  void zero_grad();                              // drops the gradients
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const noexcept;

  // State under "<parameter name>.<exp_avg|exp_avg_sq|momentum_buffer|step>", as torch.optim names it. These are the live
  // tensors: copy those that must not change with the next step. With shares: this rank's part.
  [[nodiscard]] State state() const;
  // The state of all ranks on rank 0, this rank's part on the others. Collective if there are shares.
  [[nodiscard]] State whole_state() const;
  // Takes the state of all ranks or of this one. SnapshotError if a tensor is missing, superfluous or of another shape or dtype,
  // or if the algorithm differs; then nothing is changed.
  void load_state(const State& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace::optim
