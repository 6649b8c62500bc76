#include "millrace/kernels/product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <array>

#include "millrace/kernels/detail/test_support.h"

namespace millrace::kernels {
namespace {

class Products : public EachTable {};
INSTANTIATE_TEST_SUITE_P(Tables, Products, testing::ValuesIn(detail::usable_tables().begin(), detail::usable_tables().end()),
                         table_name);

constexpr std::array<std::array<std::int64_t, 3>, 11> kShapes{{{6, 1, 6},
                                                               {7, 17, 9},
                                                               {13, 64, 70},
                                                               {200, 40, 64},
                                                               {391, 33, 129},
                                                               {12, 513, 16},
                                                               {31, 1100, 81},
                                                               {385, 600, 6},
                                                               {200, 700, 400},  // packed in parts
                                                               {8, 300, 1000},
                                                               {6, 0, 6}}};

TEST_P(Products, Fp32AgreesWithFp64InAllThreeForms) {
  for (const auto& [rows, inner, columns] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " " << inner << " " << columns);
    const at::Tensor a = at::randn({rows, inner});
    const at::Tensor b = at::randn({inner, columns});
    const at::Tensor bias = at::randn({columns});
    const at::Tensor expected = a.to(at::kDouble).matmul(b.to(at::kDouble));
    EXPECT_LT(relative_error(product(a, b), expected), 5e-6);
    EXPECT_LT(relative_error(product_with_transposed(a, b.t().contiguous(), {}), expected), 5e-6);
    EXPECT_LT(relative_error(product_with_transposed(a, b.t().contiguous(), bias), expected + bias), 5e-6);
    EXPECT_LT(relative_error(product_of_transposed(a.t().contiguous(), b, {}), expected), 5e-6);
  }
}

TEST_P(Products, Bf16IsSummedInFp32WithColumnSums) {
  for (const auto& [rows, inner, columns] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " " << inner << " " << columns);
    for (const std::int64_t height : {rows, std::int64_t{1}}) {
      const at::Tensor y = at::randn({inner, height}).to(at::kBFloat16);
      const at::Tensor x = at::randn({inner, columns}).to(at::kBFloat16);
      const at::Tensor sums = at::empty({height});
      const at::Tensor wide = y.to(at::kDouble);
      EXPECT_LT(relative_error(product_of_transposed(y, x, sums), wide.t().matmul(x.to(at::kDouble))), 5e-6);
      EXPECT_LT(relative_error(sums, wide.sum(0)), 5e-6);
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
