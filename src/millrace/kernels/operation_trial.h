// Decides which implementation an operation uses. The faster one depends on the CPU and the shape, so a run times both on its
// own shapes before its first step. The run then keeps the faster implementation until its end, because the slower one adds in
// another order and would give other bits.
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

// Operations for which a run compares our implementation with LibTorch's.
//   product, input_gradient, weight_gradient: the products of a linear layer. Each is compared alone, in fp32; weight_gradient
//     also in bf16, where LibTorch rounds the result to bf16.
//   attention: causal. full_attention: without a mask.
//   norm: with residual and dropout. convolution: circular, 3-D, channels last.
// For all operations except the products, forward and backward pass are timed together; for full_attention without a gradient,
// only the forward pass is timed.
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
[[nodiscard]] std::string_view name_of(Operation operation) noexcept;  // for example "weight_gradient"

// The implementation for tensors of `type`, fp32 or bf16. Before a choice was made, this is LibTorch's for fp32 products and
// Millrace's for all else. Any thread may call this function.
[[nodiscard]] Implementation implementation_of(Operation operation, c10::ScalarType type) noexcept;
void choose_implementation(Operation operation, c10::ScalarType type, Implementation implementation) noexcept;
void forget_implementations() noexcept;
// A number that changes whenever a choice changes. Caches of an operation's results compare this number.
[[nodiscard]] std::uint64_t implementation_changes() noexcept;

// Times of one call in a trial. The keys of KnownTimes name the calls: "weight_gradient bf16 2048x384x1536".
struct CallTime {
  double ours_ms = 0, library_ms = 0;
  bool disturbed = false;
};
using KnownTimes = std::map<std::string, CallTime>;

// While this object exists, the calls of all operations in the thread that made the object are counted. The first call of each
// shape is timed with both implementations, unless `known` has its times. Calls in other threads are not counted; on a GPU this
// includes the calls of the backward pass. Only one object may exist at a time.
class OperationTrial {
 public:
  // A trial's result for one operation: milliseconds of all its calls in a step, with each implementation.
  struct Times {
    Operation operation;
    c10::ScalarType type;
    double ours_ms = 0, library_ms = 0;
    std::int64_t calls = 0;
    double work = 0;         // multiplications of all calls
    bool disturbed = false;  // true if other programs used the cores; the times are then those of the busiest thread
    bool given_up = false;   // true if some calls were not timed, because the trial had no time left
  };

  enum class Counts : std::uint8_t { only };
  // After `most_s` seconds no further call is timed.
  explicit OperationTrial(KnownTimes known = {}, double most_s = std::numeric_limits<double>::infinity());
  explicit OperationTrial(Counts);  // times nothing; times() then returns only the amounts of work
  ~OperationTrial();
  OperationTrial(const OperationTrial&) = delete;
  OperationTrial& operator=(const OperationTrial&) = delete;
  [[nodiscard]] std::vector<Times> times() const;  // in the order of Operation
  [[nodiscard]] KnownTimes measured() const;       // the times that `known` did not have
};
[[nodiscard]] bool operation_trial_runs() noexcept;

// A call of an operation. `work` is its number of multiplications.
struct Call {
  Operation operation;
  c10::ScalarType type;
  c10::IntArrayRef shape;
  double work;
};
// The code of an operation calls this function before it computes. Returns true if the operation must use Millrace's kernel. In
// a trial, both given functions are called several times, and their results are dropped.
[[nodiscard]] bool takes_ours(const Call& call, const std::function<void()>& ours, const std::function<void()>& library);

}  // namespace millrace::kernels
