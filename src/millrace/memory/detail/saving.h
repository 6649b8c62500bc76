// Who decides what becomes of the tensors that operations save for their gradients. LibTorch asks its autograd engine for that;
// ours answers from a stack of this thread's.
#pragma once

#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace millrace::memory::detail {

class Saver {
 public:
  virtual ~Saver() = default;
  // Called once for each tensor saved; null = LibTorch keeps it as it always does.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

// `saver` decides on this thread until destruction, and none before it; null = nobody does. The first one in a process puts our
// engine in the place of LibTorch's: that must not happen within a backward pass.
class SaverScope {
 public:
  explicit SaverScope(Saver* saver);
  ~SaverScope();
  SaverScope(const SaverScope&) = delete;
  SaverScope& operator=(const SaverScope&) = delete;

 private:
  Saver* outer_;
};

}  // namespace millrace::memory::detail
