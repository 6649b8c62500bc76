// Mistakes that would fail on a GPU some day, or that only cost time, each made once: the stand-in reports each by name.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <functional>
#include <optional>

#include "fixture.h"

namespace millrace::standin {
namespace {

class Planted : public Standin {
 protected:
  // What is thrown, in its own words; empty where nothing is.
  static std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return {};
  }
  static std::string captured(const std::function<void()>& act) {
    capture(true);
    const std::string said = refusal(act);
    capture(false);
    return said;
  }
  void copy_on_its_stream(at::Tensor& to, const at::Tensor& from) {
    const c10::StreamGuard guard(copies());
    to.copy_(from, /*non_blocking=*/true);
  }
};

using testing::HasSubstr;

TEST_F(Planted, ABatchIsReadBeforeItsCopyIsDone) {
  at::Tensor slot = at::zeros({64}, on_gpu());
  order(work(), copies());
  const at::Tensor host = pinned_ones(64);
  copy_on_its_stream(slot, host);
  EXPECT_THAT(refusal([&] { (void)slot.sum(); }),
              HasSubstr("aten::sum on stream 0 of cuda:0 reads memory that a copy to the device on stream"));
  backend_->synchronize(0);
}

TEST_F(Planted, ASlotOfTheDeviceIsFilledWhileAStepReadsIt) {
  at::Tensor slot = at::zeros({64}, on_gpu());
  order(work(), copies());
  (void)slot.sum();
  const at::Tensor host = pinned_ones(64);
  EXPECT_THAT(refusal([&] { copy_on_its_stream(slot, host); }),
              HasSubstr("writes memory that aten::sum on stream 0 of cuda:0 reads"));
  backend_->synchronize(0);
}

TEST_F(Planted, ASlotOfTheHostIsGivenBackTooEarly) {
  at::Tensor host = pinned_ones(64);
  at::Tensor slot = at::zeros({64}, on_gpu());
  order(work(), copies());
  copy_on_its_stream(slot, host);
  order(copies(), work());
  (void)slot.sum();
  host.fill_(2.0);  // the next sample is read into it
  EXPECT_THAT(refusal([&] { backend_->synchronize(0); }), HasSubstr("the source of a copy (256 bytes, stream"));
}

TEST_F(Planted, ASnapshotIsTakenBesideTheUpdate) {
  at::Tensor weight = at::zeros({64}, on_gpu());
  at::Tensor staging = pinned_ones(64);
  weight.add_(1.0);
  EXPECT_THAT(refusal([&] { copy_on_its_stream(staging, weight); }), HasSubstr("a copy to the host"));
  backend_->synchronize(0);
}

TEST_F(Planted, TheUpdateDoesNotWaitForTheSnapshot) {
  at::Tensor weight = at::zeros({64}, on_gpu());
  at::Tensor staging = pinned_ones(64);
  order(work(), copies());
  copy_on_its_stream(staging, weight);
  EXPECT_THAT(refusal([&] { weight.add_(1.0); }),
              HasSubstr("aten::add_ on stream 0 of cuda:0 writes memory that a copy to the host"));
  backend_->synchronize(0);
}

TEST_F(Planted, ASnapshotIsWrittenBeforeItIsThere) {
  at::Tensor staging = pinned_ones(64);
  const at::Tensor weight = at::ones({64}, on_gpu());
  staging.copy_(weight, /*non_blocking=*/true);
  EXPECT_TRUE(staging.isnan().all().item<bool>());
  backend_->synchronize(0);
  EXPECT_EQ(staging.sum().item<float>(), 64.0F);
}

TEST_F(Planted, MemoryOfAnotherStreamIsFreedWithoutAWord) {
  const at::Tensor host = pinned_ones(64);
  std::optional<at::Tensor> slot = at::zeros({64}, on_gpu());
  order(work(), copies());
  copy_on_its_stream(*slot, host);
  slot.reset();
  EXPECT_THAT(refusal([] { (void)at::zeros({64}, on_gpu()); }), HasSubstr("a copy to the device on stream"));
  backend_->synchronize(0);
  slot = at::zeros({64}, on_gpu());
  order(work(), copies());
  copy_on_its_stream(*slot, host);
  slot->record_stream(copies());
  slot.reset();
  EXPECT_EQ(refusal([] { (void)at::zeros({64}, on_gpu()); }), "");
  backend_->synchronize(0);
}

TEST_F(Planted, ABufferIsForgottenOnTheCpu) {
  const at::Tensor x = at::ones({4}, on_gpu());
  const at::Tensor mean = at::ones({4});
  EXPECT_THAT(refusal([&] { (void)x.sub(mean); }), HasSubstr("Expected all tensors to be on the same device"));
}

TEST_F(Planted, TwoFieldsOfABatchAreOnTwoDevices) {
  const at::Tensor x = at::ones({4, 4}, on_gpu());
  const at::Tensor y = at::ones({4, 4}, at::TensorOptions().device("cuda:1"));
  EXPECT_THAT(refusal([&] { (void)at::linear(x, y); }), HasSubstr("two devices"));
}

TEST_F(Planted, TheHostReadsATensorOfTheDevice) {
  const at::Tensor x = at::ones({4}, on_gpu());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)*static_cast<volatile const float*>(x.const_data_ptr()), "host touched device memory");
}

TEST_F(Planted, MemoryIsReadThatNobodyWrote) { EXPECT_TRUE(at::empty({8}, on_gpu()).sum().isnan().item<bool>()); }

TEST_F(Planted, WhatStopsAStepStopsACapture) {
  const at::Tensor x = at::ones({4}, on_gpu());
  const at::Tensor pageable = at::ones({4});
  at::Tensor target = at::zeros({4}, on_gpu());
  c10::Event event(c10::kCUDA);
  event.record(work());
  EXPECT_THAT(captured([&] { (void)x.sum().item<float>(); }), HasSubstr("read_backs aten::_local_scalar_dense"));
  EXPECT_THAT(captured([&] { (void)x.nonzero(); }), HasSubstr("read_backs aten::nonzero"));
  EXPECT_THAT(captured([&] { (void)x.cpu(); }), HasSubstr("pageable_copies to the host"));
  EXPECT_THAT(captured([&] { (void)at::tensor({1.0F, 2.0F}, on_gpu()); }), HasSubstr("pageable_copies to the device"));
  EXPECT_THAT(captured([&] { target.copy_(pageable, true); }), HasSubstr("pageable_copies to the device"));
  EXPECT_THAT(captured([&] { target.bernoulli_(0.5); }), HasSubstr("draws aten::bernoulli_"));
  EXPECT_THAT(captured([&] { event.synchronize(); }), HasSubstr("event_waits"));
  EXPECT_THAT(captured([&] { work().synchronize(); }), HasSubstr("stream_waits"));
  EXPECT_THAT(captured([&] { backend_->synchronize(0); }), HasSubstr("device_waits"));
  const at::Tensor host = pinned_ones(4);
  EXPECT_EQ(captured([&] { (void)target.copy_(host, true).add(x); }), "");
  backend_->synchronize(0);
}

}  // namespace
}  // namespace millrace::standin
