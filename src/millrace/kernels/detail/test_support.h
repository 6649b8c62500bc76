// For the tests of the kernels: compares a kernel with a composition of ATen operations in fp64, values and gradients, and runs
// a test on every table of kernels this CPU can run.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "millrace/kernels/detail/choice.h"
#include "millrace/kernels/kernels.h"

namespace millrace::kernels {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

// Of volumes.
inline constexpr std::array kLayouts = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d};

// max |a - b| / max(max |b|, floor); infinite when sizes differ or something is not finite.
double relative_error(const at::Tensor& a, const at::Tensor& b, double floor = 1e-6);
bool equal_bits(const at::Tensor& a, const at::Tensor& b);

// A random tensor that is a view with every other element of a bigger one: rows contiguous, nothing else.
at::Tensor strided_randn(at::IntArrayRef sizes, at::ScalarType type);

// Runs `kernel` on the inputs and `reference` on fp64 copies; outputs and, from random gradients of all outputs, the gradients of
// all floating inputs must agree within `tolerance`. With `strided`, gradients come in as non-contiguous tensors.
void expect_agreement(const Function& kernel, const Function& reference, const Tensors& inputs, double tolerance,
                      bool strided = false);

// Runs each test once per table, every operation our way, the tensors made after a fixed seed.
class EachTable : public testing::TestWithParam<const detail::Table*> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

inline std::string table_name(const testing::TestParamInfo<const detail::Table*>& info) { return info.param->name; }

}  // namespace millrace::kernels
