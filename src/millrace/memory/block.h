// Named parts of a network ("blocks"), whose activations can be dropped after the forward pass and recomputed in the backward
// pass.
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

// Installs Millrace's autograd engine, which the scopes of this folder need. Call it before the first backward pass of a process,
// because LibTorch gives device threads to the first engine only. Scopes call it too; later calls do nothing.
void take_over_backward_passes();

// Names the blocks to recompute: names, or shell patterns (* = any characters, ? = one character, [a-c] = one of these
// characters); "a" matches "a.b" too. Also accepts the words "all" (or "true") for all blocks, and "none", "false" and "auto",
// which add no block.
class Recompute {
 public:
  Recompute() = default;
  explicit Recompute(std::vector<std::string> patterns);
  [[nodiscard]] bool takes(std::string_view block) const;
  [[nodiscard]] bool any() const noexcept { return !patterns_.empty(); }
  [[nodiscard]] const std::vector<std::string>& patterns() const noexcept { return patterns_; }
  // The names and patterns that match no block in `blocks`.
  [[nodiscard]] std::vector<std::string> unmatched(const std::vector<std::string>& blocks) const;

 private:
  std::vector<std::string> patterns_;
};

// Is notified of every block of the forward passes in a BlockScope, and of the block's part of the backward pass.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // Returns the `index` that later calls pass for this run of the block.
  virtual std::size_t forward_begins(std::string_view block) = 0;
  virtual void forward_ends() = 0;
  // The backward pass has reached the block, because it needs the first tensor that the block saved.
  virtual void backward_begins(std::size_t index) = 0;
  virtual void second_pass_begins(std::size_t index) = 0;
  virtual void second_pass_ends(std::size_t index) = 0;
};

// Defines what block() does on this thread until destruction. Without a scope block() only calls its function. Hold the scope
// during the forward pass, but not during the backward pass. All arguments must outlive the scope; `watcher` must also outlive
// the backward pass.
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

// True if block() has to do more than run its part. False without gradients, without a scope and inside another block.
[[nodiscard]] bool wants_block(std::string_view name);

// While this object exists, the first pass of a block is running.
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

// Runs run(), the forward pass of `part`, as block `name`. If the block is recomputed, tensors that `run` saves for its gradient
// are not kept. When the backward pass first needs such a tensor, `run` runs again, in the same autocast and random state, and
// its result is dropped. The gradients equal those without recomputing, to the bit.
//
// `run` captures its inputs by value and returns tensors; `run` depends only on these inputs and on parameters. `run` and `part`
// must live until the backward pass has passed the block. Buffers of `part` may change (running statistics): they are restored
// after the second pass. Blocks inside a block are part of it.
template <class Run>
auto block(std::string_view name, const torch::nn::Module& part, Run run) -> decltype(run()) {
  if (!wants_block(name)) return run();
  const BlockGuard guard(name, part, [run]() mutable { (void)run(); });
  return run();
}

}  // namespace millrace::memory
