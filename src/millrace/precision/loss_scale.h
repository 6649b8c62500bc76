// Dynamic loss scaling for fp16. The loss is multiplied by a scale before the backward pass, so that small gradients do not
// vanish; the scale adapts to overflows. Scale and counter stay on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace::precision {

struct LossScaleOptions {
  double initial = 65536.0;
  double growth = 2.0;                  // multiplies the scale after growth_interval good steps in a row
  double backoff = 0.5;                 // multiplies the scale after a step whose gradients were not finite
  std::int64_t growth_interval = 2000;  // this and the three defaults above are torch's
};

// Scales as torch.amp.GradScaler does, step by step. No function reads a device value on the host.
class LossScale {
 public:
  explicit LossScale(c10::Device device, LossScaleOptions options = {});

  [[nodiscard]] const at::Tensor& scale() const noexcept { return scale_; }  // scalar f32: the scale of the present step
  // Call this after each step. `found_inf`: scalar f32, 1 if a gradient was not finite, otherwise 0.
  void update(const at::Tensor& found_inf);

  [[nodiscard]] State state() const;    // "loss_scale" (f32) and "growth_tracker" (i32); the tensors themselves, not copies
  void load_state(const State& state);  // throws SnapshotError if an entry is missing or not a scalar; then nothing is changed

 private:
  LossScaleOptions options_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;  // number of good steps since the scale last changed
};

}  // namespace millrace::precision
