// Measures how much time forward and backward passes spend in each named block of a model (memory/block.h), and outside the
// blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace millrace::memory {

// Watches the passes that its owner marks, on the owner's thread. Only for devices that have finished their work when a call
// returns. A watched step costs a walk through the graph of its loss, and a clock read whenever a pass changes from one block to
// another.
class BlockClock {
 public:
  struct Part {
    std::string name;  // name of the block; "": outside all blocks
    std::int64_t forward_ns = 0, backward_ns = 0;
  };

  BlockClock();
  ~BlockClock();
  BlockClock(BlockClock&&) noexcept;
  BlockClock& operator=(BlockClock&&) noexcept;
  BlockClock(const BlockClock&) = delete;
  BlockClock& operator=(const BlockClock&) = delete;

  // The time outside all blocks, then the time of each block in the order of first use. The times add up to the watched time.
  [[nodiscard]] const std::vector<Part>& parts() const noexcept;

  struct State;

 private:
  friend class ForwardWatch;
  friend class BackwardWatch;
  std::shared_ptr<State> state_;  // shared, because nodes of a graph may outlive the clock
};

// While this object exists, a forward pass is watched. A null clock watches nothing.
class ForwardWatch {
 public:
  explicit ForwardWatch(BlockClock* clock);
  ~ForwardWatch();
  ForwardWatch(const ForwardWatch&) = delete;
  ForwardWatch& operator=(const ForwardWatch&) = delete;

 private:
  BlockClock::State* state_;
};

// While this object exists, the backward passes from `roots` are watched. The last watched forward pass must have made `roots`.
// On a CPU the engine takes the nodes in the reverse order of their creation, so that a pass goes through each block once.
class BackwardWatch {
 public:
  BackwardWatch(BlockClock* clock, std::span<const at::Tensor> roots);
  ~BackwardWatch();
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;

 private:
  BlockClock::State* state_;
};

// While this object exists, the forward pass that is watched on this thread is inside block `name`. Use it in a BlockScope. Does
// nothing if no pass is watched, or inside another block.
class BlockSpan {
 public:
  explicit BlockSpan(std::string_view name);
  ~BlockSpan();
  [[nodiscard]] static bool is_wanted() noexcept;  // true if a span would be counted
  BlockSpan(const BlockSpan&) = delete;
  BlockSpan& operator=(const BlockSpan&) = delete;

 private:
  BlockClock::State* state_;
};

}  // namespace millrace::memory
