// For the tests of the kernels: compares values and gradients of a kernel with ATen operations in fp64, and runs a test with
// every table of kernels that this CPU supports.
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

// Layouts of volumes.
inline constexpr std::array kLayouts = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast3d};

// max |a - b| / max(max |b|, floor); infinite if sizes differ or a value is not finite.
double relative_error(const at::Tensor& a, const at::Tensor& b, double floor = 1e-6);
bool equal_bits(const at::Tensor& a, const at::Tensor& b);

// A random tensor that is a view of every other row of a larger tensor, so that only its rows are contiguous.
at::Tensor strided_randn(at::IntArrayRef sizes, at::ScalarType type);

// Runs `kernel` on the inputs and `reference` on fp64 copies of the inputs. The outputs of both must agree within `tolerance`,
// and so must the gradients of all floating inputs. The backward passes begin with random gradients of all outputs; with
// `strided`, these gradients are non-contiguous tensors.
void expect_agreement(const Function& kernel, const Function& reference, const Tensors& inputs, double tolerance,
                      bool strided = false);

// Runs each test once for each table, with Millrace's kernel for every operation and tensors from a fixed seed.
class EachTable : public testing::TestWithParam<const detail::Table*> {
 protected:
  void SetUp() override;
  void TearDown() override;
};

inline std::string table_name(const testing::TestParamInfo<const detail::Table*>& info) { return info.param->name; }

}  // namespace millrace::kernels
