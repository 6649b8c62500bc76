#include "millrace/core/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "millrace/base/philox.h"

namespace millrace {

namespace {
thread_local RandomScope* innermost = nullptr;
}

RandomScope::RandomScope(std::uint64_t seed, std::uint64_t step, std::uint64_t micro_step) noexcept
    : seed_(seed), step_(step), micro_step_(micro_step), outer_(innermost) {
  innermost = this;
}

RandomScope::~RandomScope() { innermost = outer_; }

std::uint64_t RandomScope::next_key() {
  if (RandomScope* scope = innermost) return make_key(scope->seed_, scope->step_, scope->micro_step_, scope->site_++);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

}  // namespace millrace
