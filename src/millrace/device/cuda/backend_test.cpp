// Needs a GPU; skipped, and counted as skipped, without one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <vector>

#include "millrace/device/device.h"

namespace millrace::device {
namespace {

class CudaBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    backend_ = cuda(&reason);
    if (backend_ == nullptr) GTEST_SKIP() << reason;
  }
  Backend* backend_ = nullptr;
};

TEST_F(CudaBackendTest, NamesItsDevices) {
  ASSERT_GT(backend_->device_count(), 0);
  EXPECT_NE(backend_->device_name(0), "");
  EXPECT_GE(backend_->compute_capability(0).first, 7);
  EXPECT_EQ(choose("auto").device, c10::Device("cuda:0"));
}

TEST_F(CudaBackendTest, CountsWhatTensorsTake) {
  const std::uint64_t before = backend_->memory(0).allocated_bytes;
  const at::Tensor block = at::ones({1 << 20}, at::TensorOptions().device(at::kCUDA));
  backend_->synchronize(0);
  const MemoryCounters after = backend_->memory(0);
  EXPECT_EQ(after.allocated_bytes - before, 4U << 20U);
  EXPECT_GE(after.reserved_bytes, after.allocated_bytes);
  EXPECT_GE(after.peak_bytes, after.allocated_bytes);
  EXPECT_GT(after.total_bytes, after.reserved_bytes);
}

TEST_F(CudaBackendTest, PinsMemoryOfOurs) {
  std::vector<std::byte> block(1U << 20U);
  backend_->pin(block.data(), block.size());
  backend_->unpin(block.data());
  backend_->pin(block.data(), block.size());  // can be pinned again, so unpin() worked
  backend_->unpin(block.data());
}

}  // namespace
}  // namespace millrace::device
