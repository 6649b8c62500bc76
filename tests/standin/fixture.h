// The fixture of all tests of the stand-in: its backend, its streams and tensors on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <string>

#include "accounts.h"
#include "millrace/device/device.h"

namespace millrace::standin {

inline const c10::Device kGpu("cuda:0");

[[nodiscard]] inline at::TensorOptions on_gpu(at::ScalarType type = at::kFloat) { return at::TensorOptions(type).device(kGpu); }
[[nodiscard]] at::Tensor pinned_ones(std::int64_t n);

class Standin : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    backend_ = device::cuda(&reason);
    ASSERT_NE(backend_, nullptr) << reason;
    reset_accounts();
  }
  void TearDown() override { capture(false); }
  c10::Stream copies() { return backend_->copy_stream(0); }
  static c10::Stream work() { return c10::impl::getDeviceGuardImpl(c10::kCUDA)->getStream(kGpu); }
  // Makes `later` wait for the work queued on `earlier` so far.
  static void order(c10::Stream earlier, c10::Stream later) {
    c10::Event event(c10::kCUDA);
    event.record(earlier);
    event.block(later);
  }
  device::Backend* backend_ = nullptr;
};

}  // namespace millrace::standin
