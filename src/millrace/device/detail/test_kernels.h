// For tests: compares operations on the first GPU with the CPU's. Defined in cuda/kernels_test.cpp.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "millrace/device/backend.h"

namespace millrace::device {

using Numbers = std::vector<at::Tensor>;
using Computes = std::function<Numbers(const Numbers&)>;

// Skips its tests, and counts them as skipped, if there is no GPU or the plugin has no kernels of its own.
class CudaKernels : public testing::Test {
 protected:
  void SetUp() override;
  Backend* backend_ = nullptr;
};

// Compares the results of `function` and the gradients of its inputs on the GPU with those on the CPU. Each difference may be
// at most `tolerance`, relative to the largest number, or to 1 if all numbers are smaller.
void expect_the_cpu(const Computes& function, const Numbers& inputs, double tolerance, const std::string& what);
// The largest difference that expect_the_cpu() should allow for results of `type`: in fp32 the rounding errors of some
// operations, otherwise a single rounding to `type`.
double tolerance_of(at::ScalarType type);

}  // namespace millrace::device
