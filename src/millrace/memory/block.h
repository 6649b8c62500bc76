// Named parts of a network, whose activations can be thrown away after the forward pass and computed again in the backward pass.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace millrace::memory {

// Before the first backward pass of a process: scopes of this folder need an autograd engine of ours, and LibTorch gives the
// threads of devices to the first engine there is, to no later one. Scopes call it too; later calls do nothing.
void take_over_backward_passes();

// Which blocks to compute again: names, or patterns as a shell knows them (* any characters, ? one, [a-c] one of these); "a"
// takes "a.b" too. Among them the words "all" (or "true") and "none", "false", "auto", which add nothing.
class Recompute {
 public:
  Recompute() = default;
  explicit Recompute(std::vector<std::string> patterns);
  [[nodiscard]] bool takes(std::string_view block) const;
  [[nodiscard]] bool any() const noexcept { return !patterns_.empty(); }
  [[nodiscard]] const std::vector<std::string>& patterns() const noexcept { return patterns_; }
  // Those that take none of `blocks`.
  [[nodiscard]] std::vector<std::string> unmatched(const std::vector<std::string>& blocks) const;

 private:
  std::vector<std::string> patterns_;
};

// Told of every block of the forward passes in a BlockScope, and of its part of the backward pass.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual std::size_t forward_begins(std::string_view block) = 0;  // returns the `index` the calls below name it by
  virtual void forward_ends() = 0;
  virtual void backward_begins(std::size_t index) = 0;  // the backward pass wants the first thing the block saved
  virtual void second_pass_begins(std::size_t index) = 0;
  virtual void second_pass_ends(std::size_t index) = 0;
};

// What block() does on this thread until destruction; outside of one it only runs its part. Hold one over the forward pass, not
// over the backward pass. All arguments outlive the scope, `watcher` also the backward pass.
class BlockScope {
 public:
  BlockScope(const Recompute& recompute, c10::Device device, Watcher* watcher = nullptr,
             std::vector<std::string>* seen = nullptr);
  ~BlockScope();
  BlockScope(const BlockScope&) = delete;
  BlockScope& operator=(const BlockScope&) = delete;

 private:
  friend class BlockGuard;
  friend bool wants_block(std::string_view name);
  const Recompute& recompute_;
  c10::Device device_;
  Watcher* watcher_;
  std::vector<std::string>* seen_;  // names in order of first use
  BlockScope* outer_;
};

// Whether block() has anything to do but to run its part: no gradients, no scope, or inside another block = no.
[[nodiscard]] bool wants_block(std::string_view name);

// The first pass of a block, as long as one lives.
class BlockGuard {
 public:
  BlockGuard(std::string_view name, const torch::nn::Module& part, std::function<void()> run);
  ~BlockGuard();
  BlockGuard(const BlockGuard&) = delete;
  BlockGuard& operator=(const BlockGuard&) = delete;

 private:
  struct Impl;
  Watcher* watcher_;
  std::unique_ptr<Impl> impl_;
};

// run(), the forward pass of `part`, as block `name`. When the block is recomputed, nothing that `run` saves for its gradient is
// kept; the first time the backward pass wants some of it, `run` runs again, in the same autocast and random state, and its
// result is dropped. Bits do not change, since the gradients are those of the first pass.
//
// `run` captures its inputs by value (it lives until the backward pass has come past it, and so must `part`) and returns tensors;
// it is a function of them and of parameters. Buffers of `part` may move (running statistics): they are put back after the second
// pass. Blocks inside a block are part of it.
template <class Run>
auto block(std::string_view name, const torch::nn::Module& part, Run run) -> decltype(run()) {
  if (!wants_block(name)) return run();
  const BlockGuard guard(name, part, [run]() mutable { (void)run(); });
  return run();
}

}  // namespace millrace::memory
