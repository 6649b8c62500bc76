// Recordings of the stand-in: what they hold, what they keep alive, and what a CUDA graph can't hold.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <optional>
#include <stdexcept>

#include "millrace/kernels/device_table.h"
#include "record_fixture.h"

namespace millrace::standin {
namespace {

using testing::HasSubstr;

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

TEST_F(Record, DropoutFindsItsKeyOnTheDevice) {
  const kernels::DeviceTable* const table = kernels::device_table(c10::kCUDA);
  ASSERT_NE(table, nullptr);
  using kernels::detail::RecordedSite;
  const at::Tensor x = numbers({1000}), out = at::empty({1000}, on_gpu()), expected = at::empty({1000}, on_gpu());
  const at::Tensor site = at::empty({static_cast<std::int64_t>(sizeof(RecordedSite))}, on_gpu(at::kByte));
  const auto arguments = [&](const at::Tensor& to, const RecordedSite& at) {
    return kernels::detail::DropoutArgs{.x = x.const_data_ptr(),
                                        .residual = nullptr,
                                        .out = to.mutable_data_ptr(),
                                        .x_type = kernels::detail::Type::f32,
                                        .out_type = kernels::detail::Type::f32,
                                        .count = 1000,
                                        .keep = {.key = at.key, .first = at.first, .threshold = 0x8000, .scale = 2.0F}};
  };
  const auto* const there = static_cast<const RecordedSite*>(site.const_data_ptr());
  const auto recording = record([&] { table->dropout(arguments(out, {.key = 99}), there, 0); });
  EXPECT_FALSE(recording->draws());
  EXPECT_TRUE(out.isnan().all().item<bool>());
  Tensors seen;
  for (const RecordedSite& each : {RecordedSite{.key = 5, .first = 0}, RecordedSite{.key = 6, .first = 384}}) {
    RecordedSite passing = each;
    table->write(site.mutable_data_ptr(), &passing, sizeof passing, 0);
    passing = {};
    recording->replay();
    table->dropout(arguments(expected, each), nullptr, 0);
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
