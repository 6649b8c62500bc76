// Which implementation an operation uses. Neither is faster on every CPU and for every shape, so a run times both on its own
// shapes before its first step, and keeps the faster one: the other adds in another order and would give other bits.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/kernels/implementation.h"

namespace millrace::kernels {

// Operations of which a run tries both implementations. Forward and backward are tried together, except for the first three,
// which belong to a linear layer: they are tried in fp32 only, except for the weights' gradient, which LibTorch rounds to bf16 if
// the layer computes in bf16. Attention is causal, full attention is not (forward alone if no gradient is required); the norm
// includes residual and dropout; the convolution is circular, 3-D, channels last.
#define MILLRACE_OPERATIONS(OPERATION) \
  OPERATION(product)                   \
  OPERATION(input_gradient)            \
  OPERATION(weight_gradient) OPERATION(attention) OPERATION(norm) OPERATION(convolution) OPERATION(full_attention)
#define MILLRACE_LISTED(operation) operation,
enum class Operation : std::uint8_t { MILLRACE_OPERATIONS(MILLRACE_LISTED) };
#undef MILLRACE_LISTED
#define MILLRACE_NAMED(operation) #operation,
inline constexpr auto kOperationNames = std::to_array<std::string_view>({MILLRACE_OPERATIONS(MILLRACE_NAMED)});
#undef MILLRACE_NAMED
inline constexpr std::size_t kOperations = kOperationNames.size();
[[nodiscard]] std::string_view name_of(Operation operation) noexcept;  // "weight_gradient"

// The implementation for tensors of `type`, fp32 or bf16. Before a choice is made: LibTorch's for fp32 products, else ours. Any
// thread.
[[nodiscard]] Implementation implementation_of(Operation operation, c10::ScalarType type) noexcept;
void choose_implementation(Operation operation, c10::ScalarType type, Implementation implementation) noexcept;
void forget_implementations() noexcept;
// Changes whenever a choice changes: caches of an operation's results compare it.
[[nodiscard]] std::uint64_t implementation_changes() noexcept;

// One measurement of a trial, by its call: "weight_gradient bf16 2048x384x1536".
struct CallTime {
  double ours_ms = 0, library_ms = 0;
  bool disturbed = false;
};
using KnownTimes = std::map<std::string, CallTime>;

// While it lives, the calls of all operations are counted, and the first call of each shape is timed with both implementations,
// except those in `known`. Covers the thread that makes it: calls of other threads, and a backward pass on a GPU, are not seen.
// One at a time.
class OperationTrial {
 public:
  // Results of a trial for one operation: milliseconds of all its calls in a step, with either implementation.
  struct Times {
    Operation operation;
    c10::ScalarType type;
    double ours_ms = 0, library_ms = 0;
    std::int64_t calls = 0;
    double work = 0;         // multiplications of all calls
    bool disturbed = false;  // other programs used the cores: the times are those of the busiest thread
    bool given_up = false;   // some calls were not timed, since the trial had no time left
  };

  enum class Counts : std::uint8_t { only };
  // After `most_s` seconds no other call is timed.
  explicit OperationTrial(KnownTimes known = {}, double most_s = std::numeric_limits<double>::infinity());
  explicit OperationTrial(Counts);  // times nothing: times() returns the amount of work
  ~OperationTrial();
  OperationTrial(const OperationTrial&) = delete;
  OperationTrial& operator=(const OperationTrial&) = delete;
  [[nodiscard]] std::vector<Times> times() const;  // in the order of Operation
  [[nodiscard]] KnownTimes measured() const;       // the times that were not known before
};
[[nodiscard]] bool operation_trial_runs() noexcept;

// A call of an operation; `work`: its number of multiplications.
struct Call {
  Operation operation;
  c10::ScalarType type;
  c10::IntArrayRef shape;
  double work;
};
// For the code of operations: true if this call must use our kernel. In a trial both functions are called several times, and
// their results are dropped.
[[nodiscard]] bool takes_ours(const Call& call, const std::function<void()>& ours, const std::function<void()>& library);

}  // namespace millrace::kernels
