// Runs one after the other in a program: each gives the results of a separate process, and leaves the process as it was.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "millrace/kernels/operation_trial.h"
#include "toys.h"

namespace millrace {
namespace {

Json shared_config(Json config) {
  const Json shared = {{"data.batch_size", 4}, {"train.epochs", 2}, {"toy.rows", 16}, {"toy.dropout", 0.25}, {"toy.drawn", 0.25}};
  config.update(shared);
  return config;
}

// What they differ in: number format, threads, kernels, random numbers, limits, what is counted and computed again.
Json narrow() {
  return shared_config({{"precision.dtype", "bf16"},
                        {"device.threads", 1},
                        {"device.kernels", "library"},
                        {"train.seed", 1},
                        {"train.deterministic", true},
                        {"memory.limit", "2000000000"},
                        {"memory.micro_batches", 2},
                        {"log.doctor", true}});
}

Json wide() {
  return shared_config({{"precision.dtype", "fp32"},
                        {"device.threads", 2},
                        {"device.kernels", "ours"},
                        {"train.seed", 2},
                        {"memory.micro_batches", 1},
                        {"log.doctor", false}});
}

std::string state_of_run(const Json& config) {
  return toys::run(toys::grouped_regression(), "", config).summary.at("state_sha256").get<std::string>();
}

[[noreturn]] void print_state(const Json& config) {
  std::cerr << "state " << state_of_run(config) << "\n";
  std::_Exit(0);
}

// Of the same run in a new process.
std::string state_alone(const Json& config) {
  std::string state;
  const auto takes = [&state](const std::string& printed) {
    const std::size_t found = printed.rfind("state ");
    if (found == std::string::npos) return false;
    state = printed.substr(found + 6, 64);
    return true;
  };
  const testing::Matcher<const std::string&> matcher = testing::Truly(takes);
  EXPECT_EXIT(print_state(config), testing::ExitedWithCode(0), matcher);
  return state;
}

TEST(TwoRuns, GiveWhatEachGivesAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string narrow_alone = state_alone(narrow());
  const std::string wide_alone = state_alone(wide());
  ASSERT_EQ(narrow_alone.size(), 64U);
  ASSERT_NE(narrow_alone, wide_alone) << "the comparison must be able to fail";
  EXPECT_EQ(state_of_run(narrow()), narrow_alone);
  EXPECT_EQ(state_of_run(wide()), wide_alone);
  EXPECT_EQ(state_of_run(narrow()), narrow_alone);
}

TEST(TwoRuns, LeaveTheProcessAsItWas) {
  const kernels::Implementation before = kernels::implementation_of(kernels::Operation::norm, c10::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  kernels::choose_implementation(kernels::Operation::norm, c10::kFloat, kernels::Implementation::ours);
  at::globalContext().setBenchmarkCuDNN(true);
  at::manual_seed(7);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(7);
  static_cast<void>(state_of_run(narrow()));
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(kernels::implementation_of(kernels::Operation::norm, c10::kFloat), kernels::Implementation::ours);
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
  at::globalContext().setBenchmarkCuDNN(false);
  kernels::choose_implementation(kernels::Operation::norm, c10::kFloat, before);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace millrace
