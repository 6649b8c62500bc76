// When half precision does not carry a run any further. Decided on the device after each step; the host asks when it likes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "millrace/core/batch.h"

namespace millrace::precision {

// Gives up, once and for all,
//   fp16: when more than a quarter of the last steps overflowed (a mean that forgets with 100 steps), or the loss scale is below
//   1; bf16: after three steps in a row that were not finite.
class OverflowRule {
 public:
  OverflowRule(c10::Device device, c10::ScalarType format);  // format: Half or BFloat16

  // All scalar f32 on the device. `bad`: 1 when the step was not finite; `in_a_row`: how many were so, this one included;
  // `scale`: the smallest loss scale now (not looked at for bf16).
  void update(const at::Tensor& bad, const at::Tensor& in_a_row, const at::Tensor& scale);

  [[nodiscard]] bool given_up() const;       // waits for the device
  [[nodiscard]] std::string reason() const;  // of having given up, one line; waits for the device

  [[nodiscard]] State state() const;    // "overflow_rate", "overflow_scale", "gave_up": scalar f32, the live tensors
  void load_state(const State& state);  // takes what is there, the rest stays as it is

 private:
  c10::ScalarType format_;
  at::Tensor rate_;
  at::Tensor scale_;
  at::Tensor given_up_;
};

}  // namespace millrace::precision
