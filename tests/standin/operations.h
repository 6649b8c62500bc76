// The list of what a process launches on the stand-in: a line of JSON for each operation, written to the file STANDIN_OPERATIONS.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::standin {

struct Operand {
  const void* begin = nullptr;
  std::int64_t bytes = 0;
  bool read = false;
  bool written = false;
};

[[nodiscard]] bool lists_operations();
// Operands without memory are left out.
void list_operation(const std::string& name, const std::vector<Operand>& operands);
void list_end_of_step();

// The part of a tensor's memory that an operation reads or writes: an expanded dimension has each element once.
[[nodiscard]] Operand operand_of(const at::Tensor& tensor, bool written);
// Lists an operation of tensors: it reads `inputs`, and writes those of `results` that are new memory.
void list_operation(const std::string& name, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results);

}  // namespace millrace::standin
