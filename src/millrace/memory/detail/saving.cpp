#include "millrace/memory/detail/saving.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

namespace millrace::memory::detail {
namespace {

thread_local Saver* top = nullptr;

class Engine final : public torch::autograd::Engine {
 public:
  Engine() = default;
  ~Engine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return top == nullptr ? nullptr : top->hooks();
  }
  static torch::autograd::Engine& get() {
    static auto* const engine = new Engine;  // never destroyed, because its threads live as long as the process
    return *engine;
  }
};

}  // namespace

void install_engine() {
  static const bool installed = [] {
    torch::autograd::set_default_engine_stub(&Engine::get);
    return true;
  }();
  (void)installed;
}

SaverScope::SaverScope(Saver* saver) : outer_(top) {
  install_engine();
  top = saver;
}

SaverScope::~SaverScope() { top = outer_; }

}  // namespace millrace::memory::detail
