// Decides when half precision must be given up. The rule runs on the device after each step; the host may read its result at any
// time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "millrace/core/batch.h"

namespace millrace::precision {

// Gives a format up for the rest of the run in these cases:
//   fp16: more than a quarter of the latest steps overflowed (a mean over about 100 steps), or the loss scale is below 1;
//   bf16: three steps in a row were not finite.
class OverflowRule {
 public:
  OverflowRule(c10::Device device, c10::ScalarType format);  // `format`: Half or BFloat16

  // All arguments are scalar f32 on the device. `bad`: 1 if the step was not finite; `in_a_row`: number of such steps in a row,
  // this step included; `scale`: the smallest present loss scale (not used for bf16).
  void update(const at::Tensor& bad, const at::Tensor& in_a_row, const at::Tensor& scale);

  [[nodiscard]] bool given_up() const;       // waits for the device
  [[nodiscard]] std::string reason() const;  // why the format was given up, one line; waits for the device

  // "overflow_rate", "overflow_scale", "gave_up": scalar f32; the tensors themselves, not copies.
  [[nodiscard]] State state() const;
  void load_state(const State& state);  // takes the entries that exist; the others stay unchanged

 private:
  c10::ScalarType format_;
  at::Tensor rate_;
  at::Tensor scale_;
  at::Tensor given_up_;
};

}  // namespace millrace::precision
