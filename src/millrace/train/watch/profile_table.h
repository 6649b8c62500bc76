// What the operations of recorded steps took, from the trace that Kineto writes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/json.h"

namespace millrace {

// The calls of one operation with inputs of one shape.
struct ProfileRow {
  std::string name;    // as in the trace: "aten::mm", "torch::autograd::CppNode<millrace::kernels::GeluFunction>"
  std::string shapes;  // of the inputs, "[[64,300],[300,300]]"; "" where the trace has none
  std::int64_t calls = 0;
  double total_ms = 0;  // with the operations that it calls
  double self_ms = 0;   // without them
};

struct ProfileTable {
  std::int64_t steps = 0;
  double steps_ms = 0;              // of all steps
  std::int64_t operations = 0;      // on the host
  std::int64_t device_work = 0;     // kernels, copies and fills of a GPU
  double operations_ms = 0;         // sum of the host's self times
  double device_ms = 0;             // sum of the device's
  std::vector<ProfileRow> longest;  // on the host, by self time; ties by name and shapes
  std::vector<ProfileRow> device;   // the same of a GPU; there total and self are one
};

// Steps are the spans "ProfilerStep#N", operations the events "cpu_op"; other spans (forward, backward) are no operations.
// Threads are told apart: an operation is within another when it begins there on the same thread; alone within one of its own
// name it is that one, as TensorBoard's profiler counts. std::exception for what is no trace.
[[nodiscard]] ProfileTable table_of_trace(std::string_view trace, std::size_t rows = 10);

// A name for people: "GeluFunction, backward" of an autograd function of ours, others as they are.
[[nodiscard]] std::string short_name(std::string_view name);
[[nodiscard]] std::string to_text(const ProfileTable& table);  // several lines, the last without an end
[[nodiscard]] Json to_json(const ProfileTable& table);

}  // namespace millrace
