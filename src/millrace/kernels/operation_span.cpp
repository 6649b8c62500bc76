#include "millrace/kernels/operation_span.h"

#include <ATen/core/ivalue.h>

#include <vector>

namespace millrace::kernels {

void OperationSpan::begin(at::StepCallbacks callbacks, const char* name, std::span<const at::Tensor* const> inputs) {
  // The values may be destroyed before the operation ends, because the profiler's callbacks read them only at the start.
  std::vector<c10::IValue> values;
  for (const at::Tensor* input : inputs) values.emplace_back(*input);
  function_.emplace(std::move(callbacks));
  function_->before(name, c10::ArrayRef<const c10::IValue>(values.data(), values.size()));
}

}  // namespace millrace::kernels
