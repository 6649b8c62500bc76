// Records a kernel of Millrace in a profile, like an operation of LibTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <array>
#include <optional>
#include <span>
#include <utility>

namespace millrace::kernels {

// Covers the time until the end of the scope. Records the shapes of `inputs`, which may be undefined. `name`, for example
// "millrace::gelu", must never be freed. Without a profiler the span costs one check, as in each of LibTorch's operations.
class OperationSpan {
 public:
  template <class... Inputs>
  explicit OperationSpan(const char* name, const Inputs&... inputs) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) [[unlikely]]
      begin(std::move(*callbacks), name, std::array<const at::Tensor*, sizeof...(inputs)>{&inputs...});
  }
  OperationSpan(const OperationSpan&) = delete;
  OperationSpan& operator=(const OperationSpan&) = delete;

 private:
  void begin(at::StepCallbacks callbacks, const char* name, std::span<const at::Tensor* const> inputs);
  std::optional<at::RecordFunction> function_;
};

}  // namespace millrace::kernels
