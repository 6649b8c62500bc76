// Decides when half precision must be given up: on the device after each step; the host may ask at any time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "millrace/core/batch.h"

namespace millrace::precision {

// Gives a format up for the rest of the run:
//   fp16 if more than a quarter of the last steps overflowed (a mean over about 100 steps), or the loss scale is below 1;
//   bf16 after three steps in a row that were not finite.
class OverflowRule {
 public:
  OverflowRule(c10::Device device, c10::ScalarType format);  // format: Half or BFloat16

  // All scalar f32 on the device. `bad`: 1 if the step was not finite; `in_a_row`: the number of such steps in a row, including
  // this one; `scale`: the smallest loss scale now (not used for bf16).
  void update(const at::Tensor& bad, const at::Tensor& in_a_row, const at::Tensor& scale);

  [[nodiscard]] bool given_up() const;       // waits for the device
  [[nodiscard]] std::string reason() const;  // why it gave up, one line; waits for the device

  [[nodiscard]] State state() const;    // "overflow_rate", "overflow_scale", "gave_up": scalar f32, the live tensors
  void load_state(const State& state);  // takes the entries that exist, others stay unchanged

 private:
  c10::ScalarType format_;
  at::Tensor rate_;
  at::Tensor scale_;
  at::Tensor given_up_;
};

}  // namespace millrace::precision
