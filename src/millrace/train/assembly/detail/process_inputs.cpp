#include "millrace/train/assembly/detail/process_inputs.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <array>
#include <exception>
#include <memory>
#include <mutex>

#include "millrace/device/autocast.h"
#include "millrace/kernels/attention_draws.h"
#include "millrace/kernels/operation_trial.h"

namespace millrace {
namespace {

constexpr std::array<c10::ScalarType, 2> kTypes = {c10::kFloat, c10::kBFloat16};

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

// The states of the process as they were before the first run.
class Saved {
 public:
  Saved() {
    for (std::size_t i = 0; i < kernels::kOperations; ++i) {
      for (std::size_t k = 0; k < kTypes.size(); ++k)
        implementations_[i][k] = kernels::implementation_of(static_cast<kernels::Operation>(i), kTypes[k]);
    }
    kernels::forget_implementations();
  }
  void put_back() const {
    for (std::size_t i = 0; i < kernels::kOperations; ++i) {
      for (std::size_t k = 0; k < kTypes.size(); ++k)
        kernels::choose_implementation(static_cast<kernels::Operation>(i), kTypes[k], implementations_[i][k]);
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    {
      const std::scoped_lock lock(generator.mutex());
      generator.set_state(generator_state_);
    }
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(deterministic_, warns_only_);
    context.setDeterministicFillUninitializedMemory(fills_);
    context.setDeterministicCuDNN(deterministic_cudnn_);
    context.setBenchmarkCuDNN(timed_cudnn_);
    kernels::set_counted_attention(counted_attention_);
  }

 private:
  std::array<std::array<kernels::Implementation, kTypes.size()>, kernels::kOperations> implementations_{};
  at::Tensor generator_state_ = generator_state();
  int threads_ = at::get_num_threads();
  bool deterministic_ = at::globalContext().deterministicAlgorithms();
  bool warns_only_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool fills_ = at::globalContext().deterministicFillUninitializedMemory();
  bool deterministic_cudnn_ = at::globalContext().deterministicCuDNN();
  bool timed_cudnn_ = at::globalContext().benchmarkCuDNN();
  bool counted_attention_ = kernels::counts_attention();
  device::Tf32 tf32_{false};  // only an initial value; each run sets TF32 itself
};

struct Runs {
  std::mutex mutex;
  int under_way = 0;
  std::unique_ptr<Saved> saved;
};

Runs& all_runs() {
  static auto* const all = new Runs;  // never destroyed, because a run may be under way when the process ends
  return *all;
}

}  // namespace

ProcessInputs::ProcessInputs() {
  const std::scoped_lock lock(all_runs().mutex);
  if (all_runs().under_way++ == 0) all_runs().saved = std::make_unique<Saved>();
}

ProcessInputs::~ProcessInputs() {
  const std::scoped_lock lock(all_runs().mutex);
  if (--all_runs().under_way > 0) return;
  try {
    all_runs().saved->put_back();
  } catch (const std::exception&) {  // the state of a lost device can't be restored
  }
  all_runs().saved.reset();
}

}  // namespace millrace
