#include "millrace/train/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "millrace/core/saved_json.h"

namespace millrace {
namespace {

// LibTorch checks a state loosely: one whose place and rest do not belong together would read beyond the generator's 624 numbers.
std::string problem_of(const at::Tensor& state, const at::Tensor& own) {
  if (state.scalar_type() != own.scalar_type() || state.sizes() != own.sizes())
    return "tensor \"cpu\" is not " + std::to_string(own.numel()) + " bytes";
  constexpr std::int64_t kNumbers = 624;
  constexpr std::size_t kLeftAt = 8;  // after the seed: int32 left, int32 seeded, uint64 next, then the numbers
  constexpr std::size_t kNextAt = 16;
  const at::Tensor host = state.to(at::kCPU).contiguous();
  const auto* bytes = host.const_data_ptr<std::uint8_t>();
  std::int32_t left = 0;
  std::uint64_t next = 0;
  std::memcpy(&left, bytes + kLeftAt, sizeof left);
  std::memcpy(&next, bytes + kNextAt, sizeof next);
  const bool fresh = left == 1 && next == 0;
  const bool under_way = left >= 1 && left <= kNumbers && next == static_cast<std::uint64_t>(kNumbers + 1 - left);
  return fresh || under_way ? "" : "tensor \"cpu\" is no state of a Mersenne twister";
}

}  // namespace

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
  if (const std::string problem = problem_of(it->second, generator.get_state()); !problem.empty()) refuse_part("rng", problem);
  try {
    generator.set_state(it->second);
  } catch (const c10::Error& error) {
    refuse_part("rng", error.what_without_backtrace());
  }
}

KeepGenerator::~KeepGenerator() {
  try {
    set_generator_state(state_);
  } catch (const std::exception&) {
  }
}

}  // namespace millrace
