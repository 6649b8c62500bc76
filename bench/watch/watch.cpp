// Measures what it costs to detect steps that must not count: all that a step does for it, on the gradients and buffers of a
// recipe's model, interleaved with the step itself. usage: bench_watch [ROUNDS] [THREADS]
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/median.h"
#include "millrace/measure/step_bench.h"
#include "millrace/optim/optimizer.h"
#include "millrace/precision/loss_scale.h"
#include "millrace/precision/overflow_rule.h"
#include "millrace/train/run/run.h"
#include "millrace/train/step/buffer_guard.h"
#include "recipes/cosmology/entry.h"
#include "recipes/cosmology/model.h"
#include "recipes/language_model/entry.h"
#include "recipes/language_model/model.h"

namespace {

using namespace millrace;

// All that a step in fp16, the longest case, does to detect that it must not count: gradient norm and its square, loss check,
// counters, scale, rule, buffers.
class Watch {
 public:
  explicit Watch(torch::nn::Module& model)
      : optimizer_({group_of(model)}, {}), guard_(model.buffers()), scale_(at::kCPU), rule_(at::kCPU, at::kHalf) {}

  double milliseconds() {
    const double begin = steady_seconds();
    guard_.begin();
    const at::Tensor checked = count_ + (loss_ - loss_);
    const at::Tensor bad = optimizer_.prepare(nominal_ / scale_.scale(), checked).found_inf;
    scale_.update(bad);
    skipped_ += bad;
    in_a_row_ = (in_a_row_ + 1) * bad;
    rule_.update(bad, in_a_row_, scale_.scale());
    guard_.settle(bad);
    return (steady_seconds() - begin) * 1e3;
  }

 private:
  static optim::ParameterGroup group_of(torch::nn::Module& model) {
    optim::ParameterGroup group;
    for (auto& item : model.named_parameters()) {
      item.value().mutable_grad() = at::randn_like(item.value()).detach();
      group.parameters.push_back({item.key(), item.value()});
    }
    return group;
  }

  optim::Optimizer optimizer_;
  BufferGuard guard_;
  precision::LossScale scale_;
  precision::OverflowRule rule_;
  at::Tensor loss_ = at::ones({});
  at::Tensor count_ = at::ones({});
  at::Tensor nominal_ = at::ones({});
  at::Tensor skipped_ = at::zeros({}, at::kDouble);
  at::Tensor in_a_row_ = at::zeros({}, at::kDouble);
};

void compare(const Entry& entry, torch::nn::Module& model, const std::string& format, std::int64_t rounds, std::int64_t threads) {
  StepBench bench(entry, {.shape = "cpu-small", .precision = format, .threads = threads});
  Watch watch(model);
  std::vector<double> step;
  std::vector<double> cost;
  for (std::int64_t i = -3; i < rounds; ++i) {
    const double whole = bench.step();
    const double part = watch.milliseconds();
    if (i < 0) continue;
    step.push_back(whole);
    cost.push_back(part / whole);
  }
  std::printf("%-14s %s  step %7.1f ms  watch %6.3f ms  %.2f %%\n", entry.name.c_str(), format.c_str(), median(step),
              median(cost) * median(step), 100 * median(cost));
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const std::int64_t threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  recipes::language_model::Transformer text(
      {.vocab_size = 70, .positions = 256, .width = 384, .layers = 6, .heads = 6, .hidden = 1536});
  recipes::cosmology::UNet sky({.filters = 16}, 0);
  for (const char* format : {"fp32", "bf16"}) {
    compare(recipes::language_model::entry(), text, format, rounds, threads);
    compare(recipes::cosmology::entry(), sky, format, rounds, threads);
  }
  return 0;
}
