// The times of the operations in recorded steps, read from the trace that LibTorch's profiler Kineto writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// All calls of one operation with inputs of the same shapes.
struct ProfileRow {
  std::string name;    // as in the trace: "aten::mm", "torch::autograd::CppNode<millrace::kernels::GeluFunction>"
  std::string shapes;  // shapes of the inputs: "[[64,300],[300,300]]"; "" if the trace has no shapes
  std::int64_t calls = 0;
  double total_ms = 0;  // time in ms, including the operations that this operation calls
  double self_ms = 0;   // time in ms, without the operations that this operation calls
};

struct ProfileTable {
  std::int64_t steps = 0;
  double steps_ms = 0;              // time of all recorded steps, in ms
  std::int64_t operations = 0;      // number of operations on the host
  std::int64_t device_work = 0;     // number of kernels, copies and fills on a GPU
  double operations_ms = 0;         // sum of the self times on the host, in ms
  double device_ms = 0;             // sum of the times on the GPU, in ms
  std::vector<ProfileRow> longest;  // operations on the host with the longest self times; ties are sorted by name and shapes
  std::vector<ProfileRow> device;   // the longest work on a GPU, where total and self time are equal
};

// Reads a trace. Its spans "ProfilerStep#N" are the steps, its events "cpu_op" the operations; other spans (forward, backward)
// are ignored. An operation that begins during another operation of the same thread is part of that operation; each thread is
// analysed separately. An operation whose only child has the same name is counted once, together with the child, as in
// TensorBoard's profiler. `rows`: the most rows of each list. Throws std::exception if the text is not a trace.
[[nodiscard]] ProfileTable table_of_trace(std::string_view trace, std::size_t rows = 10);

// A readable name: "GeluFunction, backward" for an autograd function of Millrace, "... and sums of gradients" for a task of
// autograd's engine. Other names stay unchanged.
[[nodiscard]] std::string short_name(std::string_view name);
[[nodiscard]] std::string to_text(const ProfileTable& table);  // several lines; the last has no line end
[[nodiscard]] Json to_json(const ProfileTable& table);

}  // namespace millrace
