// Times of the operations in recorded steps, from the trace that Kineto writes.
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
  std::string shapes;  // of the inputs, "[[64,300],[300,300]]"; "" if the trace has no shapes
  std::int64_t calls = 0;
  double total_ms = 0;  // including the operations that it calls
  double self_ms = 0;   // without the operations that it calls
};

struct ProfileTable {
  std::int64_t steps = 0;
  double steps_ms = 0;              // time of all steps
  std::int64_t operations = 0;      // operations on the host
  std::int64_t device_work = 0;     // kernels, copies and fills of a GPU
  double operations_ms = 0;         // sum of self times on the host
  double device_ms = 0;             // sum on the device
  std::vector<ProfileRow> longest;  // on the host, by self time; ties by name and shapes
  std::vector<ProfileRow> device;   // the same for a GPU, where total and self are equal
};

// Steps are the spans "ProfilerStep#N", operations the events "cpu_op"; other spans (forward, backward) are not operations. Each
// thread is analysed separately: an operation is within another if it begins inside it on the same thread. An operation whose
// only child has the same name counts as one with that child, as in TensorBoard's profiler. std::exception if the text is not a
// trace.
[[nodiscard]] ProfileTable table_of_trace(std::string_view trace, std::size_t rows = 10);

// A readable name: "GeluFunction, backward" for our autograd functions, other names unchanged.
[[nodiscard]] std::string short_name(std::string_view name);
[[nodiscard]] std::string to_text(const ProfileTable& table);  // several lines, the last without a line end
[[nodiscard]] Json to_json(const ProfileTable& table);

}  // namespace millrace
