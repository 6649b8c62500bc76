#include "millrace/memory/block.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/nn/module.h>

#include <fnmatch.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/finally.h"
#include "millrace/base/format.h"
#include "millrace/core/random.h"
#include "millrace/device/autocast.h"
#include "millrace/memory/block_clock.h"
#include "millrace/memory/detail/saving.h"
#include "millrace/telemetry/spans.h"

namespace millrace::memory {
namespace {

thread_local BlockScope* scope = nullptr;
thread_local bool inside_block = false;

class InsideBlock {
 public:
  InsideBlock() noexcept : outer_(std::exchange(inside_block, true)) {}
  ~InsideBlock() { inside_block = outer_; }
  InsideBlock(const InsideBlock&) = delete;
  InsideBlock& operator=(const InsideBlock&) = delete;

 private:
  bool outer_;
};

bool covers(const std::string& pattern, const std::string& block) {
  if (::fnmatch(pattern.c_str(), block.c_str(), 0) == 0) return true;
  const std::size_t dot = block.rfind('.');
  return dot != std::string::npos && covers(pattern, block.substr(0, dot));
}

// The state of LibTorch's generators, for layers that draw random numbers from them. restore() brings the state back.
class Generators {
 public:
  explicit Generators(c10::Device device) {
    add(at::detail::getDefaultCPUGenerator());
    if (!device.is_cpu()) add(at::globalContext().defaultGenerator(device));
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      const std::scoped_lock lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(at::Generator generator) {
    const std::scoped_lock lock(generator.mutex());
    at::Tensor state = generator.get_state();
    states_.emplace_back(std::move(generator), std::move(state));
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Returns the device whose generator is saved. While a device records the pass, its generator can't be read. The CPU's generator
// is then saved instead, and step_graph.h refuses passes that need the device's generator.
c10::Device where_kept(c10::Device device, bool is_recorded) { return is_recorded ? c10::Device(c10::kCPU) : device; }

// State that a second pass may change; put_back() restores it.
class KeepState {
 public:
  KeepState(const torch::nn::Module& part, c10::Device device) : generators_(device) {
    for (const at::Tensor& buffer : part.buffers()) buffers_.emplace_back(buffer, buffer.clone());
  }
  void put_back() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, value] : buffers_) buffer.copy_(value);
    generators_.restore();
  }

 private:
  Generators generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

// A run of a block in the forward pass, shared by all tensors that the run saved.
class Pass {
 public:
  Pass(std::string_view name, const torch::nn::Module& part, c10::Device device, std::function<void()> run, Watcher* watcher,
       std::size_t index)
      : name_(name),
        part_(part),
        device_(device),
        run_(std::move(run)),
        watcher_(watcher),
        index_(index),
        generators_(where_kept(device, RandomScope::is_recorded())) {
    if (at::autocast::is_autocast_enabled(device.type())) autocast_ = at::autocast::get_autocast_dtype(device.type());
    place_ = RandomScope::position();
  }

  std::size_t add(const at::Tensor& tensor) {
    shapes_ = shapes_ * 31 + shape_of(tensor);
    firsts_.emplace_back();
    if (tensor.requires_grad()) firsts_.back().emplace(tensor);
    return saved_++;
  }

  void backward_begins() {
    if (watcher_ != nullptr && !std::exchange(announced_, true)) watcher_->backward_begins(index_);
  }

  at::Tensor take(std::size_t i) {
    backward_begins();
    if (tensors_.size() != saved_ || !tensors_[i].defined()) compute();
    return std::move(tensors_[i]);
  }

  // Called for each tensor that the second pass saves.
  void fill(const at::Tensor& tensor) {
    seen_shapes_ = seen_shapes_ * 31 + shape_of(tensor);
    const std::size_t i = tensors_.size();
    changed_ = changed_ || (i < firsts_.size() && firsts_[i] && firsts_[i]->is_older(tensor));
    tensors_.push_back(tensor);
  }

 private:
  void compute();
  void run_again();

  // A tensor that the first pass saved. If the second pass saves the same object, the block has captured that tensor, or the
  // tensor is a parameter. Its values must then be unchanged. Only tensors with gradients are compared, because the kernels'
  // cache refreshes its bf16 copies of weights in place, with the same values.
  class First {
   public:
    explicit First(const at::Tensor& tensor)
        : alive_(tensor.getIntrusivePtr()), address_(tensor.unsafeGetTensorImpl()), version_(tensor._version()) {}
    [[nodiscard]] bool is_older(const at::Tensor& tensor) const {
      return tensor.unsafeGetTensorImpl() == address_ && tensor._version() != version_;
    }

   private:
    // Keeps the address from being reused, but lets the memory be freed.
    c10::weak_intrusive_ptr<c10::TensorImpl> alive_;
    const c10::TensorImpl* address_;
    std::int64_t version_;
  };

  static std::uint64_t shape_of(const at::Tensor& tensor) {
    auto hash = static_cast<std::uint64_t>(tensor.scalar_type());
    for (const std::int64_t size : tensor.sizes()) hash = hash * 1000003 + static_cast<std::uint64_t>(size);
    return hash;
  }

  std::string name_;
  const torch::nn::Module& part_;
  c10::Device device_;
  std::function<void()> run_;
  Watcher* watcher_;
  std::size_t index_;
  Generators generators_;
  std::optional<at::ScalarType> autocast_;
  std::optional<RandomScope::Position> place_;
  std::size_t saved_ = 0;
  std::uint64_t shapes_ = 0;
  std::uint64_t seen_shapes_ = 0;
  bool announced_ = false;
  std::vector<std::optional<First>> firsts_;  // one for each saved tensor; nullopt: without gradient
  bool changed_ = false;                      // true: the second pass saved a tensor that had changed since the first pass
  std::vector<at::Tensor> tensors_;           // tensors of the second pass, each kept until it is taken
};

// Stands for a tensor that is not kept; the pass recomputes it.
struct Forgotten final : torch::autograd::SavedVariableHooks {
  explicit Forgotten(std::shared_ptr<Pass> of) : pass(std::move(of)) {}
  void call_pack_hook(const at::Tensor& tensor) override { index = pass->add(tensor); }
  at::Tensor call_unpack_hook() override { return pass->take(index); }
  std::shared_ptr<Pass> pass;
  std::size_t index = 0;
};

// Keeps the tensor, and reports when the backward pass needs it. The tensor is detached, because a saved output and its node
// would otherwise keep each other alive if no backward pass separates them.
struct Kept final : torch::autograd::SavedVariableHooks {
  explicit Kept(std::shared_ptr<Pass> of) : pass(std::move(of)) {}
  void call_pack_hook(const at::Tensor& tensor) override { kept = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    pass->backward_begins();
    return kept;
  }
  std::shared_ptr<Pass> pass;
  at::Tensor kept;
};

// Gives the tensors of the second pass to `pass`; the second pass's graph is never used.
struct Filling final : torch::autograd::SavedVariableHooks {
  explicit Filling(Pass& of) : pass(of) {}
  void call_pack_hook(const at::Tensor& tensor) override { pass.fill(tensor); }
  at::Tensor call_unpack_hook() override { throw InternalError({"a block ran a backward pass inside its forward pass", "", ""}); }
  Pass& pass;
};

class SecondPass final : public detail::Saver {
 public:
  explicit SecondPass(Pass& pass) : pass_(pass) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override { return std::make_unique<Filling>(pass_); }

 private:
  Pass& pass_;
};

void Pass::run_again() {
  generators_.restore();
  const at::AutoGradMode with_grad(true);
  const device::Autocast autocast(device_.type(), autocast_);
  std::optional<RandomScope> random;
  if (place_) random.emplace(*place_);
  SecondPass filling(*this);
  const detail::SaverScope saver(&filling);
  // The second pass always runs to its end. An exception that left it through a custom autograd function would make the function
  // and its outputs keep each other alive for good.
  run_();
}

void Pass::compute() {
  static const telemetry::Counter taken("recompute"), spent("recompute_ns");
  taken.add(1);
  const std::int64_t began = steady_nanoseconds();
  RECORD_USER_SCOPE("recompute " + name_);
  if (watcher_ != nullptr) watcher_->second_pass_begins(index_);
  tensors_.clear();
  tensors_.reserve(saved_);
  seen_shapes_ = 0;
  changed_ = false;
  {
    const InsideBlock inside;
    KeepState kept(part_, where_kept(device_, place_ && place_->recorder != nullptr));
    finally([this] { run_again(); }, [&] { kept.put_back(); });
  }
  if (tensors_.size() != saved_ || seen_shapes_ != shapes_) {
    throw InternalError({"block " + quoted(name_) + " ran differently the second time: it saved " + std::to_string(saved_) +
                             " tensors for its gradient at first, then " + std::to_string(tensors_.size()) +
                             ", or tensors of other shapes",
                         "memory.recompute",
                         "let the block depend only on what it captures and on parameters, or remove it from memory.recompute"});
  }
  if (changed_) {
    throw InternalError(
        {"block " + quoted(name_) + " can't be computed again: a tensor that it uses was changed in place afterwards",
         "memory.recompute", "change a copy instead (x = x.relu(), not x.relu_()), or remove the block from memory.recompute"});
  }
  if (watcher_ != nullptr) watcher_->second_pass_ends(index_);
  spent.add(steady_nanoseconds() - began);
}

}  // namespace

void take_over_backward_passes() { detail::install_engine(); }

Recompute::Recompute(std::vector<std::string> patterns) {
  for (std::string& pattern : patterns) {
    if (pattern == "none" || pattern == "false" || pattern == "auto" || pattern.empty()) continue;
    patterns_.push_back(pattern == "all" || pattern == "true" ? "*" : std::move(pattern));
  }
}

bool Recompute::takes(std::string_view block) const {
  return std::ranges::any_of(patterns_,
                             [name = std::string(block)](const std::string& pattern) { return covers(pattern, name); });
}

std::vector<std::string> Recompute::unmatched(const std::vector<std::string>& blocks) const {
  std::vector<std::string> lost;
  for (const std::string& pattern : patterns_) {
    if (std::ranges::none_of(blocks, [&](const std::string& block) { return covers(pattern, block); })) lost.push_back(pattern);
  }
  return lost;
}

BlockScope::BlockScope(const Recompute& recompute, c10::Device device, Watcher* watcher, std::vector<std::string>* seen)
    : recompute_(recompute), device_(device), watcher_(watcher), seen_(seen), outer_(std::exchange(scope, this)) {}

BlockScope::~BlockScope() { scope = outer_; }

bool wants_block(std::string_view name) {
  if (scope == nullptr || inside_block || !at::GradMode::is_enabled()) return false;
  if (scope->seen_ != nullptr && std::ranges::find(*scope->seen_, name) == scope->seen_->end()) scope->seen_->emplace_back(name);
  return scope->watcher_ != nullptr || scope->recompute_.takes(name) || BlockSpan::is_wanted();
}

namespace {

class Saving final : public detail::Saver {
 public:
  Saving(std::shared_ptr<Pass> of, bool recomputed) : pass_(std::move(of)), forgets_(recomputed), saver_(this) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override {
    if (forgets_) return std::make_unique<Forgotten>(pass_);
    return std::make_unique<Kept>(pass_);
  }

 private:
  std::shared_ptr<Pass> pass_;
  bool forgets_;
  InsideBlock inside_;
  detail::SaverScope saver_;
};

}  // namespace

struct BlockGuard::Impl {
  explicit Impl(std::string_view name) : span(name) {}
  BlockSpan span;
  std::optional<Saving> saving;  // nullopt: the block is not recomputed, only its time is measured
};

BlockGuard::BlockGuard(std::string_view name, const torch::nn::Module& part, std::function<void()> run)
    : watcher_(scope->watcher_), impl_(std::make_unique<Impl>(name)) {
  const bool recomputed = scope->recompute_.takes(name);
  const std::size_t index = watcher_ == nullptr ? 0 : watcher_->forward_begins(name);
  if (!recomputed) run = nullptr;
  if (recomputed || watcher_ != nullptr)
    impl_->saving.emplace(std::make_shared<Pass>(name, part, scope->device_, std::move(run), watcher_, index), recomputed);
}

BlockGuard::~BlockGuard() {
  impl_.reset();
  if (watcher_ != nullptr) watcher_->forward_ends();
}

}  // namespace millrace::memory
