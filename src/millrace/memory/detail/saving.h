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

void install_engine();  // as take_over_backward_passes() says

// `saver` decides on this thread until destruction, and none before it; null = nobody does. Installs the engine, which
// must not happen within a backward pass.
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
