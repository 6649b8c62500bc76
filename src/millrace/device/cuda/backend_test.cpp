// Tests the CUDA plugin. Without a GPU the tests that need one are skipped, and counted as skipped.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/device/copies.h"
#include "millrace/device/detail/plugin.h"
#include "millrace/device/device.h"

namespace millrace::device {
namespace {

// Runs in a separate process. Empty libraries replace those of CUDA that this machine lacks.
TEST(CudaPlugin, LoadsWithoutAGpuAndKnowsItsInterface) {
  const std::string peer = MILLRACE_SOURCE_DIR "/tools/python-peer";
  if (!std::filesystem::exists(MILLRACE_SOURCE_DIR "/.deps/venv/bin/python")) GTEST_SKIP() << "no Python: ./dev test makes one";
  const std::string code =
      "import ctypes, os, sys\n"
      "entry = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY).millrace_cuda_backend\n"
      "entry.restype, entry.argtypes = ctypes.c_void_p, [ctypes.c_int]\n"
      "print(bool(entry(int(sys.argv[2]))), bool(entry(int(sys.argv[2]) - 1)),\n"
      "      b'c10d16ProcessGroupNCCL' in open(sys.argv[1], 'rb').read())\n";
  const std::string command =
      peer + " -c \"" + code + "\" " + MILLRACE_CUDA_PLUGIN + " " + std::to_string(detail::kPluginInterface) + " 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0) << output;
  EXPECT_EQ(output, MILLRACE_HAS_NCCL ? "True False True\n" : "True False False\n");
}

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
  const Backend::MemoryCounters after = backend_->memory(0);
  EXPECT_EQ(after.allocated_bytes - before, 4U << 20U);
  EXPECT_GE(after.reserved_bytes, after.allocated_bytes);
  EXPECT_GE(after.peak_bytes, after.allocated_bytes);
  EXPECT_GT(after.total_bytes, after.reserved_bytes);
}

TEST_F(CudaBackendTest, SaysWhatCarriesItsTensorsOrWhyNothingDoes) {
  std::string reason;
  const RankGroups* const groups = backend_->rank_groups(reason);
  EXPECT_EQ(groups != nullptr, MILLRACE_HAS_NCCL) << reason;
  EXPECT_EQ(groups == nullptr, !reason.empty());
}

TEST_F(CudaBackendTest, PinsMemoryOfOurs) {
  std::vector<std::byte> block(1U << 20U);
  backend_->pin(block.data(), block.size());
  backend_->unpin(block.data());
  backend_->pin(block.data(), block.size());  // pinning works again, so unpin() worked
  backend_->unpin(block.data());
}

// The work begins with products that take longer than the host needs to launch the rest.
TEST_F(CudaBackendTest, CopiesAndWorkWaitForEachOtherWhereTheyShouldAndTheHostDoesNot) {
  const auto copies = copies_of(c10::Device("cuda:0"));
  ASSERT_NE(copies, nullptr);
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<float> host(kCount), back(kCount);
  for (std::vector<float>* one : {&host, &back}) backend_->pin(reinterpret_cast<std::byte*>(one->data()), kCount * sizeof(float));
  const auto options = at::TensorOptions().device(at::kCUDA);
  at::Tensor memory = at::zeros({kCount}, options);
  at::Tensor square = at::ones({4096, 4096}, options);
  for (int i = 0; i < 100; ++i) square = square.matmul(square).div(4096);
  const at::Tensor before = memory.add(square[0][0]).sub(1);  // reads `memory` late, when all of it is 0
  const auto free = copies->mark_work();
  std::fill(host.begin(), host.end(), 7.0F);
  copies->hold_copies(*free);
  copies->copy(memory, at::from_blob(host.data(), {kCount}));
  const auto there = copies->mark_copies();
  EXPECT_FALSE(there->reached()) << "the copy did not wait for the work, or the host for the copy";
  copies->hold_work(*there);
  const at::Tensor after = memory.add(1);
  copies->hold_copies(*copies->mark_work());
  copies->copy(at::from_blob(back.data(), {kCount}), after);
  copies->mark_copies()->wait();
  EXPECT_EQ(back.front(), 8.0F);
  EXPECT_EQ(back.back(), 8.0F);
  EXPECT_EQ(before.abs().max().item<float>(), 0.0F);
  for (std::vector<float>* one : {&host, &back}) backend_->unpin(reinterpret_cast<std::byte*>(one->data()));
}

}  // namespace
}  // namespace millrace::device
