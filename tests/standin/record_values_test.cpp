// Replays of whole training steps and of each kind of call give what the work itself gives, to the bit.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "record_fixture.h"

namespace millrace::standin {
namespace {

using testing::HasSubstr;

// What calls read, and what they may change.
struct Given {
  at::Tensor x = numbers({6, 8}), narrow = x.to(at::kBFloat16), picture = numbers({2, 4, 6, 6}), whole = x.mul(9).to(at::kLong);
  at::Tensor rows = at::arange(6, at::kLong).remainder(4).to(kGpu), mask = x.gt(0.1);
  at::Tensor sums = numbers({6, 8}, 2.0), mean = numbers({4}), spread = numbers({4}).abs().add(1.0);
};

struct Kind {
  const char* name;
  std::function<Tensors(Given&)> call;
};

// Of lists, with several results, with views, with indices, in place.
std::vector<Kind> kinds_of_calls() {
  return {
      {"lists",
       [](Given& g) {
         return at::_foreach_norm(at::_foreach_mul({g.x, g.sums}, 2.0), 2);
       }},
      {"lists in place", [](Given& g) { return at::_foreach_mul_({g.sums}, 0.5), Tensors{g.sums}; }},
      {"views", [](Given& g) { return g.x.split(2, 1); }},
      {"a view is written",
       [](Given& g) -> Tensors {
         return {g.sums.select(0, 1).copy_(g.x[2]), g.sums.t().narrow(0, 1, 2).mul_(3)};
       }},
      {"several",
       [](Given& g) -> Tensors {
         return {std::get<0>(g.x.topk(3)), std::get<1>(g.x.sort(1)), std::get<1>(g.x.max(0))};
       }},
      {"indices",
       [](Given& g) -> Tensors {
         return {g.x.index_select(0, g.rows), g.x.index({g.rows}), g.x.gather(0, g.rows.unsqueeze(1))};
       }},
      {"to indices",
       [](Given& g) -> Tensors {
         return {g.sums.index_put_({g.rows}, g.x, true), g.sums.scatter_add_(0, g.rows.unsqueeze(1), g.x)};
       }},
      {"masks",
       [](Given& g) -> Tensors {
         return {at::where(g.mask, g.x, g.sums), g.x.masked_fill(g.mask, 2), g.sums.masked_fill_(g.mask, 1)};
       }},
      {"out",
       [](Given& g) -> Tensors {
         at::Tensor out = at::empty({0}, on_gpu());
         return {at::add_out(out, g.x, g.sums), out.resize_({2, 3}).fill_(1.0)};
       }},
      {"scalars",
       [](Given& g) -> Tensors {
         return {g.x.mul(at::scalar_tensor(3.0)), g.x.add(2), at::scalar_tensor(2.0, on_gpu()).mul(g.x)};
       }},
  };
}

// Of numbers: types, memory formats, draws, what a kernel may not find in a scratch of zeros.
std::vector<Kind> kinds_of_numbers() {
  const auto patch = [](const at::Tensor& picture) { return picture.slice(2, 0, 3).slice(3, 0, 3); };
  return {
      {"bf16",
       [](Given& g) -> Tensors {
         return {g.narrow.matmul(g.narrow.t()), at::softmax(g.narrow, 1), at::log_softmax(g.x, 0)};
       }},
      {"division",
       [](Given& g) -> Tensors {
         return {g.whole.floor_divide(g.whole.abs().add(1)), g.whole.remainder(g.whole.abs().add(1))};
       }},
      {"statistics",
       [](Given& g) -> Tensors { return {at::batch_norm(g.picture, {}, {}, g.mean, g.spread, true, 0.1, 1e-5, false)}; }},
      {"pools",
       [](Given& g) -> Tensors {
         return {std::get<0>(at::max_pool2d_with_indices(g.picture, 2)), at::avg_pool2d(g.picture, 2)};
       }},
      {"attention",
       [](Given& g) -> Tensors { return {at::scaled_dot_product_attention(g.picture, g.picture, g.picture, {}, 0.0, true)}; }},
      {"convolution",
       [=](Given& g) -> Tensors { return {at::conv2d(g.picture.to(at::kBFloat16), patch(g.picture).to(at::kBFloat16))}; }},
      {"channels last",
       [=](Given& g) -> Tensors { return {at::conv2d(g.picture.contiguous(at::MemoryFormat::ChannelsLast), patch(g.picture))}; }},
      {"draws",
       [](Given& g) -> Tensors {
         return {at::empty({5}, on_gpu()).normal_(1, 2), g.sums.bernoulli_(0.5), at::randperm(9, on_gpu(at::kLong))};
       }},
      {"made",
       [](Given& g) -> Tensors {
         return {at::arange(7, on_gpu()), at::zeros({3}, on_gpu()), at::full({2}, 4.0, on_gpu()), g.x.new_ones({2})};
       }},
  };
}

// Two replays, after a recording that changed nothing, against two calls.
class RecordKind : public Record {
 protected:
  void expect_replays_of(const Kind& kind) {
    at::Generator generator = at::globalContext().defaultGenerator(kGpu);
    Given plain, recorded;
    Tensors out, expected;
    const auto recording = record([&] { out = kind.call(recorded); });
    EXPECT_TRUE(same_bits(recorded.sums, plain.sums)) << kind.name;
    generator.set_current_seed(3);
    for (int k = 0; k < 2; ++k) recording->replay();
    generator.set_current_seed(3);
    for (int k = 0; k < 2; ++k) expected = kind.call(plain);
    for (const auto member : {&Given::sums, &Given::mean, &Given::spread}) {
      out.push_back(recorded.*member);
      expected.push_back(plain.*member);
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE(same_bits(out[i], expected[i])) << kind.name << " " << i;
      EXPECT_EQ(out[i].strides(), expected[i].strides()) << kind.name << " " << i;
    }
  }
};

TEST_F(RecordKind, OfCallsIsReplayed) {
  for (const Kind& kind : kinds_of_calls()) expect_replays_of(kind);
}

TEST_F(RecordKind, OfNumbersIsReplayed) {
  for (const Kind& kind : kinds_of_numbers()) expect_replays_of(kind);
}

// A small network and its optimiser.
struct Training {
  at::Tensor x = numbers({6, 3, 8, 8}), labels = at::arange(6, at::kLong).remainder(5).to(kGpu);
  at::Tensor kernel = numbers({4, 3, 3, 3}, 2.0).mul_(0.1).requires_grad_();
  at::Tensor weight = numbers({5, 256}, 3.0).mul_(0.1).requires_grad_();
  at::Tensor rate = at::tensor({0.01}).to(on_gpu());
  Tensors averages, squares, steps;
  at::Tensor loss;
  bool sgd = false;

  explicit Training(bool with_sgd) : sgd(with_sgd) {
    for (const at::Tensor& each : {kernel, weight}) {
      averages.push_back(at::zeros_like(each.detach()));
      squares.push_back(at::zeros_like(each.detach()));
      steps.push_back(at::zeros({}, on_gpu()));
    }
  }

  void step() {
    for (at::Tensor* const each : {&kernel, &weight}) each->mutable_grad() = at::Tensor();
    for (const bool second : {false, true}) {
      const at::Tensor half = x.slice(0, second ? 3 : 0, second ? 6 : 3);
      const at::Tensor hidden = at::dropout(at::conv2d(half, kernel, {}, 1, 1).flatten(1), 0.25, true);
      const at::Tensor out = at::linear(at::gelu(at::layer_norm(hidden, {256})), weight);
      loss = at::cross_entropy_loss(out, labels.slice(0, second ? 3 : 0, second ? 6 : 3));
      loss.backward();
    }
    Tensors parameters, gradients;
    for (const at::Tensor& each : {kernel, weight}) {
      parameters.push_back(each.detach());
      gradients.push_back(each.grad());
    }
    if (sgd) {
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(gradients[i].mul(rate), -1.0);
    } else {
      for (const at::Tensor& each : steps) const_cast<at::Tensor&>(each).add_(1.0);
      at::_fused_adamw_(parameters, gradients, averages, squares, {}, steps, rate.sum(), 0.9, 0.99, 0.1, 1e-8, false, false);
    }
    loss = loss.detach();
  }
  [[nodiscard]] Tensors state() const {
    Tensors all{kernel, weight, kernel.grad(), weight.grad(), loss};
    for (const Tensors& each : {averages, squares, steps}) all.insert(all.end(), each.begin(), each.end());
    return all;
  }
};

TEST_F(Record, TrainingStepsAreThoseOfTheWorkToTheBit) {
  at::Generator generator = at::globalContext().defaultGenerator(kGpu);
  for (const bool sgd : {false, true}) {
    Training plain(sgd), recorded(sgd);
    const auto recording = record([&] { recorded.step(); });
    EXPECT_TRUE(same_bits(plain.kernel, recorded.kernel)) << "nothing is executed";
    for (int k = 0; k < 5; ++k) {
      for (Training* const each : {&plain, &recorded}) each->x.copy_(numbers({6, 3, 8, 8}, 1.0 + k));
      generator.set_current_seed(static_cast<std::uint64_t>(k));
      plain.step();
      generator.set_current_seed(static_cast<std::uint64_t>(k));
      recording->replay();
      const Tensors a = plain.state(), b = recorded.state();
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << sgd << " step " << k << " tensor " << i;
      EXPECT_FALSE(a[0].isnan().any().item<bool>());
    }
  }
}

TEST_F(Record, AnAccumulatorOfEarlierStopsIt) {
  const at::Tensor weight = numbers({4}).requires_grad_();
  const at::Tensor kept = weight.mul(2.0);  // keeps the end of its backward pass, which is the default stream's
  const auto step = [&] { weight.mul(3.0).sum().backward(); };
  EXPECT_THAT(refusal(step), HasSubstr("default stream"));
}

TEST_F(Record, AReplayWithAnUpdateIsAStepOfTheAccount) {
  Training training(false);
  const auto recording = record([&] { training.step(); });
  reset_accounts();
  for (int k = 0; k < 3; ++k) recording->replay();
  const std::string account = accounts_as_json();
  std::size_t steps = 0;
  for (std::size_t at = account.find("replays cuda:0"); at != std::string::npos; at = account.find("replays cuda:0", at + 1))
    ++steps;
  EXPECT_EQ(steps, 4U) << "three steps and the total: " << account;
}

// In a process of its own: whether kernels compute is known once and for all.
TEST_F(Record, WithoutKernelsAReplayCostsNothing) {
  (void)at::ones({4}, on_gpu());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [&] {
    Training training(false);
    const auto timed = [](int times, const Work& act) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) act();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    const auto recording = record([&] { training.step(); });
    const double replays = timed(1000, [&] { recording->replay(); });
    const double steps = timed(200, [&] { training.step(); });
    std::fprintf(stderr, "1000 replays %g s, 200 steps %g s\n", replays, steps);
    std::_Exit(recording->draws() && replays < steps ? 0 : 1);
  };
  ::setenv("STANDIN_KERNELS", "none", 1);
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "1000 replays");
  ::unsetenv("STANDIN_KERNELS");
}

}  // namespace
}  // namespace millrace::standin
