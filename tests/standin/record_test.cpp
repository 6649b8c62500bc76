// Recordings of the stand-in: replays give what the work itself gives, to the bit, and what a CUDA graph can't hold is refused.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
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
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "fixture.h"
#include "millrace/kernels/device_table.h"

namespace millrace::standin {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Work = std::function<void()>;

std::string thrown_by(const Work& act) {
  try {
    act();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

at::Tensor numbers(at::IntArrayRef sizes, double pace = 1.0) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::arange(count, at::kFloat).mul(pace).sin().reshape(sizes).to(kGpu);
}

// Also NaN is equal to itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().cpu().contiguous(), y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

class Record : public Standin {
 protected:
  std::unique_ptr<device::Recording> record(const Work& work) { return backend_->record(0, work); }
  // What a recording of `act` says.
  std::string refusal(const Work& act) {
    return thrown_by([&] { (void)record(act); });
  }
};

TEST_F(Record, ReplaysAreRunsOfTheWork) {
  const auto work = [](const at::Tensor& x, at::Tensor& sum, at::Tensor& out) {
    const at::Tensor y = x.mul(2.0).add(1.0);
    sum.add_(y);
    out = y.matmul(sum.t()).relu();
  };
  const at::Tensor x = numbers({4, 3});
  at::Tensor there = at::zeros({4, 3}, on_gpu()), expected = there.clone();
  at::Tensor out, expected_out;
  const auto recording = record([&] { work(x, there, out); });
  ASSERT_NE(recording, nullptr);
  EXPECT_FALSE(recording->draws());
  EXPECT_TRUE(same_bits(there, expected)) << "nothing is executed";
  EXPECT_TRUE(out.isnan().all().item<bool>());
  for (int k = 0; k < 3; ++k) {
    x.copy_(numbers({4, 3}, 1.0 + k));
    recording->replay();
    work(x, expected, expected_out);
    EXPECT_TRUE(same_bits(there, expected)) << k;
    EXPECT_TRUE(same_bits(out, expected_out)) << k;
  }
  EXPECT_EQ(counted(Count::replays), 3U);
}

TEST_F(Record, NothingIsLaunchedOrCounted) {
  at::Tensor x = at::ones({8}, on_gpu());
  reset_accounts();
  const auto recording = record([&] { x.add_(1.0).mul_(2.0); });
  EXPECT_EQ(counted(Count::launches), 0U);
  EXPECT_EQ(counted(Count::recorded), 2U);
  recording->replay();
  EXPECT_EQ(counted(Count::launches), 0U);
  EXPECT_EQ(x.sum().item<float>(), 32.0F);
}

TEST_F(Record, IndicesWithoutValuesAreNoMistake) {
  const at::Tensor table = numbers({10, 4});
  const at::Tensor tokens = at::empty({6}, on_gpu(at::kLong));
  at::Tensor rows, loss;
  const auto recording = record([&] {
    rows = at::embedding(table, tokens.add(1));
    loss = at::cross_entropy_loss(rows, tokens.remainder(4));
  });
  tokens.copy_(at::arange(6, at::kLong));
  recording->replay();
  EXPECT_TRUE(same_bits(rows, at::embedding(table, tokens.add(1))));
  EXPECT_TRUE(same_bits(loss, at::cross_entropy_loss(rows, tokens.remainder(4))));
}

// One call of each kind: of lists, with several results, in place, with views, with indices, with memory that a call makes
// larger.
TEST_F(Record, EveryKindOfCallIsReplayed) {
  const at::Tensor x = numbers({6, 8}), narrow = x.to(at::kBFloat16), picture = numbers({2, 4, 6, 6}),
                   whole = x.mul(9).to(at::kLong);
  const at::Tensor where = at::arange(6, at::kLong).remainder(4).to(kGpu), mask = x.gt(0.1);
  at::Tensor sums = numbers({6, 8}, 2.0), mean = numbers({4}), spread = numbers({4}).abs().add(1.0);
  const std::vector<std::pair<const char*, std::function<Tensors()>>> kinds = {
      {"bf16",
       [&] {
         return Tensors{narrow.matmul(narrow.t()), at::softmax(narrow, 1), at::log_softmax(x, 0)};
       }},
      {"lists",
       [&] {
         return at::_foreach_norm(at::_foreach_mul({x, sums}, 2.0), 2);
       }},
      {"lists in place", [&] { return at::_foreach_mul_({sums}, 0.5), Tensors{sums}; }},
      {"views", [&] { return x.split(2, 1); }},
      {"view and write", [&] { return sums.select(0, 1).copy_(x[2]), sums.t().narrow(0, 1, 2).mul_(3.0), Tensors{sums}; }},
      {"several results",
       [&] {
         return Tensors{std::get<0>(x.topk(3)), std::get<1>(x.sort(1)), std::get<1>(x.max(0))};
       }},
      {"indices",
       [&] {
         return Tensors{x.index_select(0, where), x.index({where}), x.gather(0, where.unsqueeze(1))};
       }},
      {"indices in place",
       [&] {
         return Tensors{sums.index_put_({where}, x, true), sums.scatter_add_(0, where.unsqueeze(1), x)};
       }},
      {"masks",
       [&] {
         return Tensors{at::where(mask, x, sums), x.masked_fill(mask, 2.0), sums.masked_fill_(mask, 1.0)};
       }},
      {"division",
       [&] {
         return Tensors{whole.floor_divide(whole.abs().add(1)), whole.remainder(whole.abs().add(1))};
       }},
      {"statistics",
       [&] {
         return Tensors{at::batch_norm(picture, {}, {}, mean, spread, true, 0.1, 1e-5, false), mean, spread};
       }},
      {"pools",
       [&] {
         return Tensors{std::get<0>(at::max_pool2d_with_indices(picture, 2)), at::avg_pool2d(picture, 2)};
       }},
      {"attention", [&] { return Tensors{at::scaled_dot_product_attention(picture, picture, picture, {}, 0.0, true)}; }},
      {"convolution",
       [&] { return Tensors{at::conv2d(picture.to(at::kBFloat16), picture.slice(2, 0, 3).slice(3, 0, 3).to(at::kBFloat16))}; }},
      {"channels last",
       [&] {
         return Tensors{at::conv2d(picture.contiguous(at::MemoryFormat::ChannelsLast), picture.slice(2, 0, 3).slice(3, 0, 3))};
       }},
      {"out",
       [&] {
         at::Tensor out = at::empty({0}, on_gpu());
         return Tensors{at::add_out(out, x, sums), out.resize_({2, 3}).fill_(1.0)};
       }},
      {"draws",
       [&] {
         return Tensors{at::empty({5}, on_gpu()).normal_(1.0, 2.0), sums.bernoulli_(0.5), at::randperm(9, on_gpu(at::kLong))};
       }},
      {"made",
       [&] {
         return Tensors{at::arange(7, on_gpu()), at::zeros({3}, on_gpu()), at::full({2}, 4.0, on_gpu()), x.new_ones({2})};
       }},
      {"scalars",
       [&] {
         return Tensors{x.mul(at::scalar_tensor(3.0)), x.add(2), at::scalar_tensor(2.0, on_gpu()).mul(x)};
       }},
  };
  at::Generator generator = at::globalContext().defaultGenerator(kGpu);
  for (const auto& [name, kind] : kinds) {
    const Tensors changed{sums, mean, spread}, before{sums.clone(), mean.clone(), spread.clone()};
    const auto reset = [&] {
      for (std::size_t i = 0; i < changed.size(); ++i) changed[i].copy_(before[i]);
      generator.set_current_seed(3);
    };
    Tensors out, seen, expected;
    const std::function<Tensors()>& act = kind;
    const auto recording = record([&] { out = act(); });
    for (std::size_t i = 0; i < changed.size(); ++i) EXPECT_TRUE(same_bits(changed[i], before[i])) << name;
    reset();
    for (int k = 0; k < 2; ++k) recording->replay();
    for (const at::Tensor& each : out) seen.push_back(each.cpu());
    for (const at::Tensor& each : changed) seen.push_back(each.cpu());
    reset();
    for (int k = 0; k < 2; ++k) expected = act();
    for (const at::Tensor& each : changed) expected.push_back(each);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_TRUE(same_bits(seen[i], expected[i])) << name << " " << i;
      EXPECT_EQ(seen[i].strides(), expected[i].cpu().strides()) << name << " " << i;
    }
  }
}

TEST_F(Record, AnExceptionLeavesNoTrace) {
  at::Tensor x = at::ones({8}, on_gpu());
  const std::uint64_t before = backend_->memory(0).reserved_bytes;
  EXPECT_EQ(thrown_by([&] {
              (void)record([&] {
                (void)x.add_(1.0).mul(3.0);
                throw std::runtime_error("enough");
              });
            }),
            "enough");
  EXPECT_EQ(backend_->memory(0).reserved_bytes, before);
  EXPECT_EQ(x.sum().item<float>(), 8.0F);
  x.add_(1.0);
  EXPECT_EQ(x.sum().item<float>(), 16.0F);
  EXPECT_NE(record([&] { x.add_(1.0); }), nullptr);
}

TEST_F(Record, WhatAGraphCanNotHoldIsRefused) {
  const at::Tensor x = at::ones({4}, on_gpu());
  const at::Tensor pageable = at::ones({4}), host = pinned_ones(4), words = at::ones({4}, at::kLong).pin_memory();
  at::Tensor target = at::zeros({4}, on_gpu());
  c10::Event event(c10::kCUDA);
  event.record(work());
  EXPECT_THAT(refusal([&] { (void)x.sum().item<float>(); }), HasSubstr("read_backs aten::_local_scalar_dense"));
  EXPECT_THAT(refusal([&] { (void)x.nonzero(); }), HasSubstr("read_backs aten::nonzero"));
  EXPECT_THAT(refusal([&] { (void)x.index({x.gt(0)}); }), HasSubstr("read_backs aten::index"));
  EXPECT_THAT(refusal([&] { target.index_put_({x.gt(0)}, x); }), HasSubstr("read_backs aten::_index_put_impl_"));
  EXPECT_THAT(refusal([&] { (void)x.cpu(); }), HasSubstr("pageable_copies to the host"));
  EXPECT_THAT(refusal([&] { (void)at::tensor({1.0F, 2.0F}, on_gpu()); }), HasSubstr("pageable_copies to the device"));
  EXPECT_THAT(refusal([&] { target.copy_(pageable, true); }), HasSubstr("pageable_copies to the device"));
  EXPECT_THAT(refusal([&] { target.copy_(host); }), HasSubstr("blocking_copies to the device"));
  EXPECT_THAT(refusal([&] { target.copy_(words, true); }), HasSubstr("a copy between types or layouts"));
  EXPECT_THAT(refusal([&] { event.synchronize(); }), HasSubstr("event_waits"));
  EXPECT_THAT(refusal([&] { (void)event.query(); }), HasSubstr("a look at an event"));
  EXPECT_THAT(refusal([&] { event.block(work()); }), HasSubstr("work that is not recorded"));
  EXPECT_THAT(refusal([&] { work().synchronize(); }), HasSubstr("stream_waits"));
  EXPECT_THAT(refusal([&] { backend_->synchronize(0); }), HasSubstr("device_waits"));
  EXPECT_THAT(refusal([&] { (void)record([] {}); }), HasSubstr("a recording inside another"));
  EXPECT_THAT(refusal([&] { (void)thrown_by([&] { backend_->synchronize(0); }); }), HasSubstr("failed earlier: device_waits"));
  EXPECT_EQ(refusal([&] { (void)target.copy_(host, true).add(x); }), "");
  EXPECT_EQ(target.sum().item<float>(), 0.0F);
}

TEST_F(Record, OnlyTheStreamThatWaitsTakesPart) {
  const at::Tensor x = at::ones({4}, on_gpu());
  at::Tensor y = at::zeros({4}, on_gpu());
  const auto aside = [&](bool joins) {
    const c10::Stream own = work();
    order(own, copies());
    {
      const c10::StreamGuard guard(copies());
      y.add_(x);
    }
    if (joins) order(copies(), own);
  };
  EXPECT_THAT(refusal([&] {
                const c10::StreamGuard guard(copies());
                y.add_(x);
              }),
              HasSubstr("which is not recorded"));
  EXPECT_THAT(refusal([&] { aside(false); }), HasSubstr("does not wait for"));
  const auto recording = record([&] { aside(true); });
  recording->replay();
  recording->replay();
  EXPECT_EQ(y.sum().item<float>(), 8.0F);
}

TEST_F(Record, PageLockedMemoryIsReadAndWrittenByEachReplay) {
  at::Tensor host = pinned_ones(4), back = at::zeros({4}, at::TensorOptions().pinned_memory(true));
  const at::Tensor there = at::zeros({4}, on_gpu());
  const auto recording = record([&] {
    there.copy_(host, /*non_blocking=*/true);
    back.copy_(there.mul(2.0), /*non_blocking=*/true);
  });
  EXPECT_EQ(back.sum().item<float>(), 0.0F);
  for (const float value : {3.0F, 5.0F}) {
    host.fill_(value);
    recording->replay();
    backend_->synchronize(0);
    EXPECT_EQ(back.sum().item<float>(), 8 * value);
  }
}

TEST_F(Record, MemoryThatAReplayDoesNotWriteIsGarbage) {
  at::Tensor x = at::ones({4}, on_gpu()), made, out;
  const auto recording = record([&] { made = at::empty({4}, on_gpu()), out = x.add(made); });
  made.fill_(1.0);
  recording->replay();
  EXPECT_TRUE(out.isnan().all().item<bool>());
}

TEST_F(Record, ALaterRecordingOfTheStepReadsTheEarlierOnesResults) {
  const at::Tensor x = at::ones({4}, on_gpu());
  at::Tensor sum;
  const auto first = record([&] { sum = x.mul(2.0); });
  const auto second = record([&] { sum.add_(x); });
  for (int k = 0; k < 2; ++k) {
    first->replay(), second->replay(), second->replay();
    EXPECT_EQ(sum.sum().item<float>(), 16.0F);
  }
}

TEST_F(Record, AReplayLeavesNothingOfTheRecordingsAfterIt) {
  const at::Tensor x = at::ones({4}, on_gpu());
  at::Tensor early, late;
  const auto first = record([&] { early = x.mul(2.0); });
  const auto second = record([&] { late = early.add(1.0); });
  first->replay(), second->replay();
  EXPECT_EQ(late.sum().item<float>(), 12.0F);
  first->replay();
  EXPECT_TRUE(late.isnan().all().item<bool>());
  second->replay();
  EXPECT_EQ(early.sum().item<float>(), 8.0F);
}

TEST_F(Record, ItsMemoryLivesAndThatOfOthersMustLive) {
  std::optional<at::Tensor> x = at::ones({1 << 16}, on_gpu());
  const std::uint64_t before = backend_->memory(0).reserved_bytes;
  auto recording = record([&] { (void)x->mul(2.0).add_(1.0); });
  EXPECT_GE(backend_->memory(0).reserved_bytes, before + (4U << 16U));
  EXPECT_EQ(backend_->memory(0).allocated_bytes, before);
  recording->replay();
  x.reset();
  EXPECT_THAT(thrown_by([&] { recording->replay(); }), HasSubstr("whose tensor is gone"));
  recording.reset();
  EXPECT_EQ(backend_->memory(0).reserved_bytes, before - (4U << 16U));
}

TEST_F(Record, DrawsAreThoseOfTheWork) {
  at::Generator generator = at::globalContext().defaultGenerator(kGpu);
  const auto work = [] { return Tensors{at::rand({16}, on_gpu()), at::dropout(at::ones({64}, on_gpu()), 0.5, true)}; };
  generator.set_current_seed(3);
  (void)work();
  generator.set_current_seed(3);
  Tensors out;
  const auto recording = record([&] { out = work(); });
  EXPECT_TRUE(recording->draws());
  EXPECT_EQ(generator.get_offset(), 0U);
  Tensors seen;
  for (int k = 0; k < 3; ++k) {
    recording->replay();
    for (const at::Tensor& each : out) seen.push_back(each.cpu());
  }
  const std::uint64_t offset = generator.get_offset();
  generator.set_current_seed(3);
  for (std::size_t k = 0; k < 3; ++k) {
    const Tensors expected = work();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(seen[2 * k + i], expected[i])) << k << " " << i;
  }
  EXPECT_EQ(generator.get_offset(), offset);
}

TEST_F(Record, TheGeneratorCanNotBeMovedWhileRecording) {
  at::Generator generator = at::globalContext().defaultGenerator(kGpu);
  generator.set_current_seed(3);
  (void)at::rand({16}, on_gpu());
  const std::uint64_t offset = generator.get_offset();
  const at::Tensor state = generator.get_state();
  EXPECT_THAT(refusal([&] { generator.set_current_seed(4); }), HasSubstr("another seed"));
  EXPECT_THAT(refusal([&] { generator.set_state(state); }), HasSubstr("another state"));
  EXPECT_THAT(refusal([&] { generator.set_offset(0); }), HasSubstr("another position"));
  at::Generator own = generator.clone();
  EXPECT_THAT(refusal([&] { (void)at::rand({16}, own, on_gpu()); }), HasSubstr("a generator of one's own"));
  EXPECT_EQ(refusal([&] { generator.set_current_seed(3); }), "");
  EXPECT_EQ(generator.get_offset(), offset);
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

TEST_F(Record, DropoutFindsItsKeyOnTheDevice) {
  const kernels::DeviceTable* const table = kernels::device_table(c10::kCUDA);
  ASSERT_NE(table, nullptr);
  using kernels::detail::RecordedSite;
  const at::Tensor x = numbers({1000}), out = at::empty({1000}, on_gpu()), expected = at::empty({1000}, on_gpu());
  const at::Tensor site = at::empty({static_cast<std::int64_t>(sizeof(RecordedSite))}, on_gpu(at::kByte));
  const auto arguments = [&](const at::Tensor& to, std::uint64_t key) {
    return kernels::detail::DropoutArgs{.x = x.const_data_ptr(),
                                        .residual = nullptr,
                                        .out = to.mutable_data_ptr(),
                                        .x_type = kernels::detail::Type::f32,
                                        .out_type = kernels::detail::Type::f32,
                                        .count = 1000,
                                        .keep = {.key = key, .first = 0, .threshold = 0x8000, .scale = 2.0F}};
  };
  const auto* const there = static_cast<const RecordedSite*>(site.const_data_ptr());
  const auto recording = record([&] { table->recorded_dropout(arguments(out, 99), there, 0); });
  EXPECT_FALSE(recording->draws());
  EXPECT_TRUE(out.isnan().all().item<bool>());
  Tensors seen;
  for (const RecordedSite& each : {RecordedSite{.key = 5, .first = 0}, RecordedSite{.key = 6, .first = 384}}) {
    RecordedSite passing = each;
    table->write(site.mutable_data_ptr(), &passing, sizeof passing, 0);
    passing = {};
    recording->replay();
    const kernels::detail::DropoutRun run{.begin = 0, .count = 1000, .first = each.first};
    table->dropout(arguments(expected, each.key), &run, 1, 0);
    EXPECT_TRUE(same_bits(out, expected)) << each.key;
    seen.push_back(out.cpu());
  }
  EXPECT_FALSE(same_bits(seen[0], seen[1]));
  const RecordedSite passing;
  EXPECT_THAT(refusal([&] { table->write(site.mutable_data_ptr(), &passing, sizeof passing, 0); }), HasSubstr("host writes"));
}

TEST_F(Record, AReplayIsInOrderWithItsOwnStreamAlone) {
  at::Tensor slot = at::zeros({64}, on_gpu());
  at::Tensor sum;
  const auto recording = record([&] { sum = slot.sum(); });
  const at::Tensor host = pinned_ones(64);
  order(work(), copies());
  {
    const c10::StreamGuard guard(copies());
    slot.copy_(host, /*non_blocking=*/true);
  }
  EXPECT_THAT(thrown_by([&] { recording->replay(); }), HasSubstr("and no event orders the two"));
  order(copies(), work());
  recording->replay();
  EXPECT_EQ(sum.item<float>(), 64.0F);
}

}  // namespace
}  // namespace millrace::standin
