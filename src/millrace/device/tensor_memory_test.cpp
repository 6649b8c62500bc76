#include "millrace/device/tensor_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/errors.h"

namespace millrace::device {
namespace {

constexpr std::int64_t kMegabyte = 1 << 20;
constexpr double kSlack = 16384;  // the C library rounds blocks up to pages

at::Tensor bytes(std::int64_t count) { return at::empty({count}, at::kByte); }

TEST(TensorMemory, CountsWhatIsAliveAndThePeak) {
  count_tensor_memory();
  count_tensor_memory();
  const std::uint64_t before = tensor_memory().live_bytes;
  reset_peak_tensor_memory();
  {
    const at::Tensor kept = bytes(kMegabyte);
    (void)bytes(3 * kMegabyte);
    EXPECT_NEAR(static_cast<double>(tensor_memory().live_bytes - before), kMegabyte, kSlack);
    EXPECT_NEAR(static_cast<double>(tensor_memory().peak_bytes - before), 4 * kMegabyte, kSlack);
    reset_peak_tensor_memory();
    EXPECT_EQ(tensor_memory().peak_bytes, tensor_memory().live_bytes);
    (void)bytes(0);
  }
  EXPECT_EQ(tensor_memory().live_bytes, before);
}

TEST(TensorMemory, ATensorBeyondTheLimitIsRefusedAndTheNextOneThatFitsIsNot) {
  count_tensor_memory();
  limit_tensor_memory(tensor_memory().live_bytes + 2 * kMegabyte);
  try {
    (void)bytes(3 * kMegabyte);
    ADD_FAILURE() << "nothing was refused";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_TRUE(is_out_of_memory(error));
    EXPECT_NE(std::string(error.what()).find("a tensor of 3.1 MB does not fit"), std::string::npos) << error.what();
  }
  EXPECT_EQ(bytes(kMegabyte).numel(), kMegabyte);
  limit_tensor_memory(0);
  EXPECT_EQ(bytes(3 * kMegabyte).numel(), 3 * kMegabyte);
}

at::Tensor filled(std::int64_t megabytes) { return at::ones({megabytes * kMegabyte}, at::kByte); }

bool is_refused(std::int64_t megabytes) {
  try {
    (void)filled(megabytes);
    return false;
  } catch (const c10::OutOfMemoryError& error) {
    return std::string(error.what()).find("does not fit: the process holds ") != std::string::npos;
  }
}

// Describes the fault; "" = no fault was found.
std::string fault_of_resident_limit() {
  count_tensor_memory();
  release_cached_memory(at::kCPU);
  const std::uint64_t begin = private_resident_bytes();
  std::vector<std::unique_ptr<char[]>> kept;  // such blocks are small enough for the heap and stay resident when they are freed
  for (int i = 0; i < 640; ++i) {
    kept.push_back(std::make_unique<char[]>(100'000));
    std::memset(kept.back().get(), 1, 100'000);
  }
  limit_resident_memory(private_resident_bytes() + 40 * kMegabyte);
  if (is_refused(32)) return "a tensor that fits was refused";
  if (!is_refused(64)) return "a tensor that does not fit was not refused";
  kept.clear();
  if (is_refused(64)) return "memory that the C library keeps was counted";
  limit_resident_memory(begin);
  if (!is_refused(64)) return "what the process holds was not counted";
  limit_resident_memory(0);
  return is_refused(64) ? "a tensor was refused without a limit" : "";
}

// Runs in a child process, because the memory that the C library can return depends on what the tests before have left in its
// heap.
TEST(TensorMemoryDeathTest, WhatTheProcessHoldsCountsAgainstItsLimitAndWhatItKeepsFreeDoesNot) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const std::string fault = fault_of_resident_limit();
        std::fputs(fault.c_str(), stderr);
        std::exit(fault.empty() ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace millrace::device
