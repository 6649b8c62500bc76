#include "millrace/train/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>

namespace millrace {

State generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  State state;
  state.tensors["cpu"] = generator.get_state();
  return state;
}

void set_generator_state(const State& state) {
  const auto it = state.tensors.find("cpu");
  if (it == state.tensors.end()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(it->second);
}

}  // namespace millrace
