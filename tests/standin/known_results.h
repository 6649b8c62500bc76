// STANDIN_KERNELS=none: what an operation gave is known from the second time on by its arguments' shapes and values, so that a
// call costs what a launch costs and no kernel's time.
#pragma once

#include <ATen/core/dispatch/OperatorEntry.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace millrace::standin {

// Name of a call: the operation and all that its results' shapes can depend on, where no value of a tensor counts. Empty where an
// argument is of a kind that is not known here.
[[nodiscard]] std::string name_of_call(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

// Puts new tensors of the known shapes, or the arguments themselves, in place of the call's arguments; false where the call is
// not known.
[[nodiscard]] bool answer_known(const std::string& call, torch::jit::Stack* stack, std::size_t arguments, int device);

// Remembers what the call gave; a result that is a view of an argument is not remembered.
void remember(const std::string& call, const std::vector<c10::IValue>& arguments, const torch::jit::Stack& stack,
              std::size_t results);

}  // namespace millrace::standin
