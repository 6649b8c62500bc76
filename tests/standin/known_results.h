// STANDIN_KERNELS=none: from the second call on, an operation's result is known by its arguments' shapes and values, so that a
// call costs as much as a launch, without a kernel's time.
#pragma once

#include <ATen/core/dispatch/OperatorEntry.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace millrace::standin {

// The call's name: the operation and everything that its results' shapes can depend on. Empty if tensor values decide the shapes,
// or if an argument is of an unknown kind.
[[nodiscard]] std::string name_of_call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// Replaces the call's arguments by new tensors of the known shapes, or by the arguments themselves; false if the call is not
// known.
[[nodiscard]] bool answer_known(const std::string& call, torch::jit::Stack* stack, std::size_t arguments, int device);

// Remembers the call's results; a result that is a view of an argument is not remembered.
void remember(const std::string& call, const std::vector<c10::IValue>& arguments, const torch::jit::Stack& stack,
              std::size_t results);

}  // namespace millrace::standin
