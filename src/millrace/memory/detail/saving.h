// Decides what happens to the tensors that operations save for their gradients. LibTorch asks its autograd engine, so Millrace
// installs an engine that answers with the saver of this thread.
#pragma once

#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace millrace::memory::detail {

class Saver {
 public:
  virtual ~Saver() = default;
  // Called once for each saved tensor. Null = LibTorch keeps the tensor as usual.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

void install_engine();  // does the work of take_over_backward_passes()

// While this object exists, only `saver` decides on this thread; null = LibTorch keeps all tensors as usual. The constructor
// installs the engine, so it must not run within a backward pass.
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
