// Measures what a cached causal mask saves, and what an attention without a mask saves: forward passes of a small model at T =
// 512, interleaved. usage: mask_cache [FORWARDS] [THREADS]
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "millrace/base/median.h"
#include "recipes/language_model/model.h"

namespace lm = millrace::recipes::language_model;

namespace {

lm::ModelConfig shape(lm::Attention attention) {
  return {.vocab_size = 1000,
          .positions = 512,
          .width = 128,
          .layers = 2,
          .heads = 4,
          .hidden = 256,
          .tied = false,
          .attention = attention};
}

double forward_ms(lm::Transformer& model, const at::Tensor& tokens) {
  const auto begin = std::chrono::steady_clock::now();
  model.forward(tokens);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int forwards = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1000;
  at::set_num_threads(argc > 2 ? std::max(1, std::atoi(argv[2])) : 2);
  const torch::NoGradGuard no_grad;
  lm::Transformer rebuilt(shape(lm::Attention::explicit_));
  lm::Transformer cached(shape(lm::Attention::explicit_));
  lm::Transformer causal(shape(lm::Attention::causal));
  rebuilt.use_mask_cache(false);
  struct Row {
    const char* name;
    lm::Transformer* model;
    std::vector<double> ms;
  };
  Row rows[] = {
      {"mask rebuilt in every forward", &rebuilt, {}}, {"mask cached", &cached, {}}, {"no mask (is_causal)", &causal, {}}};
  const at::Tensor tokens = at::randint(0, 1000, {1, 512}, at::kLong);
  for (Row& row : rows) {
    row.model->eval();
    for (int i = 0; i < 10; ++i) forward_ms(*row.model, tokens);
  }
  for (int i = 0; i < forwards; ++i) {
    for (Row& row : rows) row.ms.push_back(forward_ms(*row.model, tokens));
  }
  const double base = millrace::median(rows[0].ms);
  std::printf("%d forwards, T = 512, %lld parameters, %d threads; median ms, share of the first row\n", forwards,
              static_cast<long long>(lm::parameter_count(shape(lm::Attention::causal))), at::get_num_threads());
  for (const Row& row : rows)
    std::printf("  %-30s %8.3f  %5.2f\n", row.name, millrace::median(row.ms), millrace::median(row.ms) / base);
  std::printf("cache: %zu mask, %lld bytes\n", cached.mask_cache_size(), static_cast<long long>(cached.mask_cache_bytes()));
  return 0;
}
