// Where the time of forward and backward passes goes: into the named blocks of a model (memory/block.h) and into what is outside
// of them.
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

// Watches the passes that its owner asks it to, on the owner's thread. For devices whose work is done when a call returns. Costs
// a watched step a walk through the graph of its loss, and one clock read where a pass goes from one block to another.
class BlockClock {
 public:
  struct Part {
    std::string name;  // of the block; "": outside of all blocks
    std::int64_t forward_ns = 0, backward_ns = 0;
  };

  BlockClock();
  ~BlockClock();
  BlockClock(BlockClock&&) noexcept;
  BlockClock& operator=(BlockClock&&) noexcept;
  BlockClock(const BlockClock&) = delete;
  BlockClock& operator=(const BlockClock&) = delete;

  // The outside first, then the blocks in order of first use. What they have of a pass adds up to how long it was watched.
  [[nodiscard]] const std::vector<Part>& parts() const noexcept;

  struct State;

 private:
  friend class ForwardWatch;
  friend class BackwardWatch;
  std::shared_ptr<State> state_;  // nodes of a graph may outlive the clock
};

// A forward pass, as long as one lives. A null clock watches nothing.
class ForwardWatch {
 public:
  explicit ForwardWatch(BlockClock* clock);
  ~ForwardWatch();
  ForwardWatch(const ForwardWatch&) = delete;
  ForwardWatch& operator=(const ForwardWatch&) = delete;

 private:
  BlockClock::State* state_;
};

// The backward passes from `roots`, which came out of the forward pass that was watched last, as long as one lives. The engine
// takes the nodes of a CPU's graph in the reverse of the order in which they were made, so that a pass goes through each block
// once.
class BackwardWatch {
 public:
  BackwardWatch(BlockClock* clock, std::span<const at::Tensor> roots);
  ~BackwardWatch();
  BackwardWatch(const BackwardWatch&) = delete;
  BackwardWatch& operator=(const BackwardWatch&) = delete;

 private:
  BlockClock::State* state_;
};

// A block in the forward pass that is watched on this thread, inside a BlockScope; nothing where none is, or inside another
// block.
class BlockSpan {
 public:
  explicit BlockSpan(std::string_view name);
  ~BlockSpan();
  [[nodiscard]] static bool is_wanted() noexcept;  // whether one would count
  BlockSpan(const BlockSpan&) = delete;
  BlockSpan& operator=(const BlockSpan&) = delete;

 private:
  BlockClock::State* state_;
};

}  // namespace millrace::memory
