#include "millrace/core/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "millrace/base/philox.h"

namespace millrace {

namespace {
thread_local RandomScope* innermost = nullptr;
}

RandomScope::RandomScope(std::uint64_t seed, std::uint64_t step, std::uint64_t micro_step) noexcept
    : RandomScope(Place{seed, step, micro_step, 0}) {}

RandomScope::RandomScope(const Place& place) noexcept : place_(place), outer_(innermost) { innermost = this; }

RandomScope::~RandomScope() { innermost = outer_; }

std::uint64_t RandomScope::next_key() {
  if (RandomScope* scope = innermost) {
    Place& here = scope->place_;
    return make_key(here.seed, here.step, here.micro_step, here.site++);
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

std::optional<RandomScope::Place> RandomScope::place() noexcept {
  return innermost == nullptr ? std::nullopt : std::optional(innermost->place_);
}

}  // namespace millrace
