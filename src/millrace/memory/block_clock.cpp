#include "millrace/memory/block_clock.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "millrace/base/clock.h"

namespace millrace::memory {

using torch::autograd::Node;

struct BlockClock::State {
  // A part of a forward pass: the nodes that a block made.
  struct Stretch {
    std::uint64_t begin = 0, end = 0;  // sequence numbers of the nodes
    std::size_t part = 0;
  };
  enum class Pass : std::uint8_t { none, forward, backward };

  std::vector<Part> parts = {Part{}};
  std::vector<Stretch> stretches;  // parts of the latest forward pass, in order
  std::size_t next = 1;            // index of the part that is expected next; all passes have the same order of parts
  std::size_t now = 0;             // index of the present part
  std::int64_t since_ns = 0;
  Pass pass = Pass::none;

  void turn_to(std::size_t part) noexcept {
    const std::int64_t time = steady_nanoseconds();
    (pass == Pass::forward ? parts[now].forward_ns : parts[now].backward_ns) += time - since_ns;
    since_ns = time;
    now = part;
  }
  void begin(Pass of, std::size_t part) noexcept {
    pass = of;
    now = part;
    since_ns = steady_nanoseconds();
  }
  void end() noexcept {
    turn_to(0);
    pass = Pass::none;
  }
  std::size_t part_of(std::string_view name) {
    if (next >= parts.size() || parts[next].name != name) {
      const auto found = std::find_if(parts.begin() + 1, parts.end(), [&](const Part& part) { return part.name == name; });
      next = static_cast<std::size_t>(found - parts.begin());
      if (found == parts.end()) parts.push_back({.name = std::string(name)});
    }
    return next++;
  }
  // Returns the node's position in the pass: an even number between blocks, an odd number inside a block.
  [[nodiscard]] std::size_t place_of(const Node& node) const noexcept {
    const auto after = std::ranges::upper_bound(stretches, node.sequence_nr(), {}, &Stretch::begin);
    const auto count = static_cast<std::size_t>(after - stretches.begin());
    return count > 0 && node.sequence_nr() < std::prev(after)->end ? 2 * count - 1 : 2 * count;
  }
  [[nodiscard]] std::size_t part_at(std::size_t place) const noexcept { return place % 2 == 1 ? stretches[place / 2].part : 0; }
};

namespace {

thread_local BlockClock::State* watched = nullptr;  // null inside a block, and if this thread's pass is not watched

struct EntersPart final : torch::autograd::FunctionPreHook {
  EntersPart(std::shared_ptr<BlockClock::State> of, std::size_t enters) : state(std::move(of)), part(enters) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (state->pass == BlockClock::State::Pass::backward) state->turn_to(part);
    return gradients;
  }
  std::shared_ptr<BlockClock::State> state;
  std::size_t part;
};

// Adds hooks to nodes at which the backward passes may enter or leave a block. Backward passes begin outside the blocks, after
// the last of them.
void mark_borders(const std::shared_ptr<BlockClock::State>& state, std::span<const at::Tensor> roots) {
  struct Known {
    Node* node;
    std::size_t place;
  };
  std::unordered_set<Node*> seen, marked;
  std::vector<Known> open;
  const auto follow = [&](Node* to, std::size_t from) {
    // A node that accumulates a gradient runs as soon as possible. Such a node belongs to the block from which the gradient
    // came.
    if (to == nullptr || to->sequence_nr() == std::numeric_limits<std::uint64_t>::max()) return;
    const std::size_t place = state->place_of(*to);
    if (place != from && marked.insert(to).second) to->add_pre_hook(std::make_unique<EntersPart>(state, state->part_at(place)));
    if (seen.insert(to).second) open.push_back({to, place});
  };
  for (const at::Tensor& root : roots) follow(root.grad_fn().get(), 2 * state->stretches.size());
  while (!open.empty()) {
    const Known from = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : from.node->next_edges()) follow(edge.function.get(), from.place);
  }
}

}  // namespace

BlockClock::BlockClock() : state_(std::make_shared<State>()) {}
BlockClock::~BlockClock() = default;
BlockClock::BlockClock(BlockClock&&) noexcept = default;
BlockClock& BlockClock::operator=(BlockClock&&) noexcept = default;

const std::vector<BlockClock::Part>& BlockClock::parts() const noexcept { return state_->parts; }

ForwardWatch::ForwardWatch(BlockClock* clock) : state_(clock == nullptr ? nullptr : clock->state_.get()) {
  if (state_ == nullptr) return;
  state_->stretches.clear();
  state_->next = 1;
  watched = state_;
  state_->begin(BlockClock::State::Pass::forward, 0);
}

ForwardWatch::~ForwardWatch() {
  if (state_ == nullptr) return;
  state_->end();
  watched = nullptr;
}

BackwardWatch::BackwardWatch(BlockClock* clock, std::span<const at::Tensor> roots)
    : state_(clock == nullptr ? nullptr : clock->state_.get()) {
  if (state_ == nullptr) return;
  mark_borders(clock->state_, roots);
  state_->begin(BlockClock::State::Pass::backward, 0);
}

BackwardWatch::~BackwardWatch() {
  if (state_ != nullptr) state_->end();
}

BlockSpan::BlockSpan(std::string_view name) : state_(std::exchange(watched, nullptr)) {
  if (state_ == nullptr) return;
  const std::uint64_t first = at::sequence_number::peek();
  const std::size_t part = state_->part_of(name);
  state_->stretches.push_back({.begin = first, .end = std::numeric_limits<std::uint64_t>::max(), .part = part});
  state_->turn_to(part);
}

bool BlockSpan::is_wanted() noexcept { return watched != nullptr; }

BlockSpan::~BlockSpan() {
  if (state_ == nullptr) return;
  state_->turn_to(0);
  state_->stretches.back().end = at::sequence_number::peek();
  watched = state_;
}

}  // namespace millrace::memory
