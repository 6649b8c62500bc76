// Records a kernel of ours in a profile, as an operation like LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <array>
#include <optional>
#include <span>
#include <utility>

namespace millrace::kernels {

// Covers the time until the end of the scope, with the shapes of `inputs`, undefined ones too. `name` is for example
// "millrace::gelu" and must never be freed. Without a profiler it costs one check, as in each of LibTorch's operations.
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
