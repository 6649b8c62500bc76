#include "millrace/device/operation_census.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

namespace millrace::device {
namespace {

using testing::HasSubstr;

TEST(OperationCensus, CountsTopOperationsAndHostReads) {
  const at::Tensor x = at::ones({8, 8});
  const OperationCensus census = census_of([&] {
    const at::Tensor y = x.matmul(x).relu();
    EXPECT_GT(y.sum().item<float>(), 0);
  });
  EXPECT_EQ(census.operations, 4);  // matmul calls mm, which is not counted separately
  EXPECT_EQ(census.host_reads, 1);
  EXPECT_GT(census.seconds, 0);
  EXPECT_EQ(census.rebuilt_seconds, 0);
}

TEST(OperationCensus, WhatATrialReadsOfItsStepIsNoneOfTheStepsOwnReads) {
  const at::Tensor x = at::ones({8, 8});
  const OperationCensus census = census_of([&] {
    const at::Tensor sum = x.sum();
    EXPECT_GT(sum.item<float>(), 0);
    const ExpectedReads of_the_trial;
    EXPECT_GT(sum.item<float>(), 0);
  });
  EXPECT_EQ(census.host_reads, 1);
  EXPECT_EQ(census.operations, 2) << "the sum, and what the step itself asked for";
}

TEST(OperationCensus, FindsWhatIsMadeAnewInEveryStep) {
  const at::Tensor scores = at::rand({400, 400});
  const OperationCensus masked = census_of([&] {
    const at::Tensor mask = at::ones({400, 400}).tril() == 0;
    EXPECT_TRUE(scores.masked_fill(mask, -1e9).defined());
  });
  EXPECT_GT(masked.rebuilt_seconds, 0);
  EXPECT_LT(masked.rebuilt_seconds, masked.seconds);
  EXPECT_THAT(masked.rebuilt_by, HasSubstr("[400, 400]"));
  const at::Tensor mask = at::ones({400, 400}).tril() == 0;
  EXPECT_EQ(census_of([&] { EXPECT_TRUE(scores.masked_fill(mask, -1e9).defined()); }).rebuilt_seconds, 0);
}

TEST(OperationCensus, RandomNumbersAndSumsInZerosAreNoConstants) {
  const at::Tensor x = at::rand({300, 300});
  const OperationCensus census = census_of([&] {
    at::Tensor sum = at::zeros({300, 300});
    sum.add_(x);
    at::Tensor keep = at::ones({300, 300});
    keep.bernoulli_(0.5);
    EXPECT_TRUE((sum * keep).defined());
  });
  EXPECT_EQ(census.rebuilt_seconds, 0);
}

// The meta device, which holds no values, replaces a second device.
TEST(OperationCensus, CopiesBetweenDevicesAreCountedUnlessABatchIsOnItsWay) {
  const at::Tensor x = at::rand({30, 30}), y = at::rand({3, 3});
  const OperationCensus census = census_of([&] {
    {
      const ExpectedCopies batch;
      EXPECT_TRUE(x.to(at::kMeta).is_meta());
    }
    at::Tensor there = x.to(at::kMeta);
    there.narrow(0, 0, 3).narrow(1, 0, 3).copy_(y);
    EXPECT_TRUE(x.to(at::kDouble).defined());
  });
  EXPECT_EQ(census.copies, 2);
  EXPECT_EQ(census.copied_by, "aten::to [30, 30] from cpu to meta");
}

}  // namespace
}  // namespace millrace::device
