// Dynamic loss scaling for fp16: the loss is multiplied before the backward pass so that small gradients do not vanish, and the
// factor adapts to overflows. Scale and counter stay on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "millrace/core/batch.h"

namespace millrace::precision {

struct LossScaleOptions {
  double initial = 65536.0;
  double growth = 2.0;                  // after growth_interval good steps in a row
  double backoff = 0.5;                 // after a step whose gradients were not finite
  std::int64_t growth_interval = 2000;  // like all four, torch's default
};

// The rule of torch.amp.GradScaler, step by step. Nothing here reads a device value on the host.
class LossScale {
 public:
  explicit LossScale(c10::Device device, LossScaleOptions options = {});

  [[nodiscard]] const at::Tensor& scale() const noexcept { return scale_; }  // scalar f32; for the step under way
  // Call it after each step: scalar f32, 1 if a gradient was not finite, else 0.
  void update(const at::Tensor& found_inf);

  [[nodiscard]] State state() const;    // "loss_scale" (f32) and "growth_tracker" (i32), the live tensors
  void load_state(const State& state);  // SnapshotError if one is missing or not a scalar; then nothing is changed

 private:
  LossScaleOptions options_;
  at::Tensor scale_;
  at::Tensor growth_tracker_;  // good steps since the last change of the scale
};

}  // namespace millrace::precision
