// Which way an operation goes: through our kernel or through LibTorch's own operations. Neither is the faster way on every CPU
// and for every shape. So a run times both on its own shapes before its first step, and keeps to the faster one: the other way
// adds in another order and would give other bits.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::kernels {

enum class Way : std::uint8_t { ours, library };

// Operations of which a run tries both ways. Forward and backward are tried together but for the first three, which are of a
// linear layer: in fp32 alone, but for the weights' gradient, which LibTorch rounds to bf16 where the layer computes in bf16.
// Attention is causal, full attention is not (forward alone where no gradient is wanted); the norm has residual and dropout in
// it; the convolution is circular, 3-D, channels last.
#define MILLRACE_OPERATIONS(OPERATION)                                                                             \
  OPERATION(product)                                                                                               \
  OPERATION(input_gradient) OPERATION(weight_gradient) OPERATION(attention) OPERATION(norm) OPERATION(convolution) \
      OPERATION(full_attention)
#define MILLRACE_LISTED(operation) operation,
enum class Operation : std::uint8_t { MILLRACE_OPERATIONS(MILLRACE_LISTED) };
#undef MILLRACE_LISTED
#define MILLRACE_COUNTED(operation) +1
inline constexpr std::size_t kOperations = MILLRACE_OPERATIONS(MILLRACE_COUNTED);
#undef MILLRACE_COUNTED
[[nodiscard]] std::string_view name_of(Operation operation) noexcept;  // "weight_gradient"

// For tensors of `type`, fp32 or bf16. Until it is chosen: LibTorch's for fp32 products, else ours. Any thread.
[[nodiscard]] Way way_of(Operation operation, c10::ScalarType type) noexcept;
void choose_way(Operation operation, c10::ScalarType type, Way way) noexcept;
void forget_ways() noexcept;
// Another number when a choice has changed: who keeps results of an operation keeps those of one way.
[[nodiscard]] std::uint64_t ways_so_far() noexcept;

// What a trial found of one operation: milliseconds of all its calls in a step, one way and the other.
struct WayTimes {
  Operation operation;
  c10::ScalarType type;
  double ours_ms = 0, library_ms = 0;
  std::int64_t calls = 0;
  double work = 0;         // multiplications of all calls
  bool disturbed = false;  // other programs had the cores: the times are those of the busiest thread
};

// One measurement of a trial, by the call it is of: "weight_gradient bf16 2048x384x1536".
struct WayTime {
  double ours_ms = 0, library_ms = 0;
  bool disturbed = false;
};
using KnownTimes = std::map<std::string, WayTime>;

// While it lives, the calls of all operations are counted, and the first one of each shape is timed both ways, but for those in
// `known`. Of the thread that makes it: calls of other threads, and a backward pass on a GPU, are not seen. One at a time.
class WayTrial {
 public:
  enum class Counts : std::uint8_t { only };
  explicit WayTrial(KnownTimes known = {});
  explicit WayTrial(Counts);  // times nothing: times() says how much work there is
  ~WayTrial();
  WayTrial(const WayTrial&) = delete;
  WayTrial& operator=(const WayTrial&) = delete;
  [[nodiscard]] std::vector<WayTimes> times() const;  // in the order of Operation
  [[nodiscard]] KnownTimes measured() const;          // what was not known before
};
[[nodiscard]] bool way_trial_runs() noexcept;

// For operations: a call of this shape, which multiplies `work` times. True when it is to go our way. In a trial both functions
// are called, some times; what they give is dropped.
struct Call {
  Operation operation;
  c10::ScalarType type;
  c10::IntArrayRef shape;
  double work;
};
[[nodiscard]] bool goes_our_way(const Call& call, const std::function<void()>& ours, const std::function<void()>& library);

}  // namespace millrace::kernels
