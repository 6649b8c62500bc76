// Tests groups that carry tensors of their device between ranks, as NCCL does for GPUs. Here Gloo on the CPU replaces NCCL.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/device/rank_groups.h"
#include "millrace/distributed/detail/test_ranks.h"

namespace millrace::distributed {
namespace {

struct NotedCalls {
  std::mutex mutex;
  std::vector<std::string> all;
  bool has_failed = false;  // the groups report a failure
  void note(const std::string& call) {
    const std::lock_guard lock(mutex);
    all.push_back(call);
  }
};

// A Gloo group that records its calls and its end.
class NotedGroup final : public c10d::Backend {
 public:
  NotedGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, std::shared_ptr<NotedCalls> calls)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), calls_(std::move(calls)) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    calls_->note("allreduce");
    return gloo_->allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    calls_->note("broadcast");
    return gloo_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_sizes,
                                               std::vector<std::int64_t>& in_sizes,
                                               const c10d::AllToAllOptions& options) override {
    calls_->note("to");
    return gloo_->alltoall_base(out, in, out_sizes, in_sizes, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    calls_->note("back");
    return gloo_->_allgather_base(out, in, options);
  }
  c10d::ErrorType getError() override { return calls_->has_failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }
  void abort() override { calls_->note("abort"); }
  void shutdown() override { calls_->note("shutdown"); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::shared_ptr<NotedCalls> calls_;
};

class NotedGroups final : public device::RankGroups {
 public:
  explicit NotedGroups(std::string identity = "a card") : identity_(std::move(identity)) {}
  [[nodiscard]] std::string name() const override { return "noted"; }
  [[nodiscard]] std::string library() const override { return "NCCL of a test"; }
  [[nodiscard]] std::string identity(int /*gpu*/) const override { return identity_; }
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> connect(const device::RankGroups::Seat& seat) override {
    auto options = c10d::ProcessGroupGloo::Options::create(seat.timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    return c10::make_intrusive<NotedGroup>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(seat.store, seat.rank, seat.world_size, options), calls);
  }
  std::shared_ptr<NotedCalls> calls = std::make_shared<NotedCalls>();  // the groups outlive this object

 private:
  std::string identity_;
};

Chosen<std::string> use(Processes& processes, NotedGroups& groups) { return processes.use_groups(at::kCPU, &groups, "", "auto"); }

std::string card_of(const Processes& processes) { return "card " + std::to_string(processes.ranks().rank); }

at::Tensor numbers_of(int rank) {
  return ((at::arange(1001, at::kFloat) + 17 * rank) * (0.37 + rank)).sin() * std::pow(10, rank);
}

class DeviceGroupsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, DeviceGroupsOf, testing::Values(2, 4));

TEST_P(DeviceGroupsOf, SumsAndSharesAreThoseOfGloo) {
  const int world = GetParam();
  at::Tensor expected = numbers_of(0);
  for (int rank = 1; rank < world; ++rank) expected = expected + numbers_of(rank);
  EXPECT_EQ(on_ranks(world, free_port(),
                     [&](Processes& processes) {
                       NotedGroups groups(card_of(processes));
                       EXPECT_EQ(use(processes, groups).reason, "NCCL of a test, a GPU for each rank");
                       const int rank = processes.ranks().rank;
                       std::vector<at::Tensor> values = {numbers_of(rank), at::full({3}, rank, at::kLong), numbers_of(rank)};
                       processes.sum(values);
                       EXPECT_TRUE(values[0].equal(expected));
                       EXPECT_TRUE(values[1].eq(world * (world - 1) / 2).all().item<bool>());
                       EXPECT_TRUE(values[2].equal(expected));
                       std::vector<at::Tensor> shared = {at::full({5}, rank), at::full({2, 2}, 10 + rank)};
                       processes.share(shared, {1, 0});
                       EXPECT_TRUE(shared[0].eq(1).all().item<bool>());
                       EXPECT_TRUE(shared[1].eq(10).all().item<bool>());
                       EXPECT_EQ(processes.sum(rank), world * (world - 1) / 2) << "words go over Gloo";
                       const std::vector<std::string> calls =
                           world == 2 ? std::vector<std::string>{"allreduce", "allreduce", "broadcast", "broadcast"}
                                      : std::vector<std::string>{"to", "back", "to", "back", "broadcast", "broadcast"};
                       EXPECT_EQ(groups.calls->all, calls);
                     }),
            none(world));
}

// A single group carries both halves of a sum. The order of its calls is the same on all ranks, no matter when a half arrives.
TEST_P(DeviceGroupsOf, GradientsHaveTheBitsOfGloosInCallsOfOneOrder) {
  const int world = GetParam();
  std::mutex mutex;
  std::map<bool, std::vector<at::Tensor>> sums_of;
  for (const bool carried : {false, true}) {
    EXPECT_EQ(on_ranks(world, free_port(),
                       [&](Processes& processes) {
                         NotedGroups groups(card_of(processes));
                         if (carried) (void)use(processes, groups);
                         const int rank = processes.ranks().rank;
                         std::vector<at::Tensor> parameters;
                         for (const std::int64_t size : {7, 16, 33})
                           parameters.push_back((at::arange(size, at::kFloat) * 0.37).sin().set_requires_grad(true));
                         const auto sums = processes.gradient_sums(parameters, {.bucket_bytes = 1});
                         std::vector<at::Tensor> all;
                         for (int step = 0; step < 2; ++step) {
                           sums->begin(at::full({}, 1.1 + rank, at::kFloat));
                           at::Tensor loss = at::full({}, 0.0F);
                           for (at::Tensor& parameter : parameters) {
                             parameter.mutable_grad() = at::Tensor();
                             loss = loss + (parameter * (0.3 + rank)).sin().sum();
                           }
                           loss.backward();
                           sums->send();
                           all = sums->receive();
                         }
                         if (carried) {
                           std::vector<std::string> calls;
                           for (int bucket = 0; bucket < 6; ++bucket) {
                             calls.emplace_back(world == 2 ? "allreduce" : "to");
                             if (world > 2) calls.emplace_back("back");
                           }
                           EXPECT_EQ(groups.calls->all, calls);
                         }
                         if (rank > 0) return;
                         const std::lock_guard lock(mutex);
                         for (const at::Tensor& sum : all) sums_of[carried].push_back(sum.clone());
                       }),
              none(world));
  }
  ASSERT_EQ(sums_of[true].size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(sums_of[true][i].equal(sums_of[false][i])) << i;
}

TEST(DeviceGroups, HalfPrecisionIsAddedUpInFp32AndRoundedOnce) {
  constexpr int kRanks = 3;
  EXPECT_EQ(on_ranks(kRanks, free_port(),
                     [&](Processes& processes) {
                       NotedGroups groups(card_of(processes));
                       (void)use(processes, groups);
                       const at::Tensor weight = at::full({5}, 1.0F).set_requires_grad(true);
                       const auto sums = processes.gradient_sums({weight}, {.compress = true});
                       sums->begin(at::full({}, 1.0F));
                       (weight * 3).sum().backward();
                       sums->send();
                       EXPECT_TRUE(sums->receive()[0].eq(9).all().item<bool>());
                     }),
            none(kRanks));
}

TEST(DeviceGroups, EndWithTheRunTogether) {
  std::array<NotedGroups, 2> groups = {NotedGroups("card 0"), NotedGroups("card 1")};
  const auto errors = on_ranks(2, free_port(), [&](Processes& processes) {
    NotedGroups& mine = groups[static_cast<std::size_t>(processes.ranks().rank)];
    (void)use(processes, mine);
    (void)processes.gradient_sums({at::full({5}, 1.0F).set_requires_grad(true)}, {});
  });
  EXPECT_EQ(errors, none(2));
  for (const NotedGroups& mine : groups) EXPECT_THAT(mine.calls->all, testing::ElementsAre("shutdown", "shutdown"));
}

// Sums that ranks have begun with a lost rank never end by themselves, so they must be cut.
TEST(DeviceGroups, AreCutWhereARankIsLostOrLeaves) {
  for (const bool has_failed : {false, true}) {
    std::latch told(2);
    const auto errors = on_ranks(3, free_port(), [&](Processes& processes) {
      NotedGroups groups(card_of(processes));
      (void)use(processes, groups);
      groups.calls->has_failed = has_failed;
      EXPECT_FALSE(processes.has_cut_sums());
      static_cast<void>(processes.any(false));  // a rank that leaves earlier breaks the connections that others still make
      if (processes.ranks().rank == 1) {
        processes.leave();
        EXPECT_THAT(groups.calls->all, testing::ElementsAre("abort"));
        EXPECT_EQ(processes.has_cut_sums(), has_failed);
        std::vector<at::Tensor> values = {at::full({3}, 7.0F)};
        processes.sum(values);
        EXPECT_TRUE(values[0].eq(7).all().item<bool>()) << "it waits for nobody";
        return;
      }
      try {
        for (int i = 0; i < 3; ++i) static_cast<void>(processes.any(false));
      } catch (const DistributedError&) {
        EXPECT_THAT(groups.calls->all, testing::ElementsAre("abort"));
        EXPECT_EQ(processes.has_cut_sums(), has_failed);
        told.arrive_and_wait();  // keeps rank 0, which holds the store, until the others are done
        throw;
      }
    });
    EXPECT_THAT(errors[0], testing::HasSubstr("lost rank 1 "));
    EXPECT_EQ(errors[1], "");
    EXPECT_THAT(errors[2], testing::HasSubstr("lost rank 1 "));
  }
}

TEST(DeviceGroups, AreNotMadeWhereRanksShareACardOrAskForGloo) {
  EXPECT_EQ(on_ranks(2, free_port(),
                     [](Processes& processes) {
                       NotedGroups groups;
                       EXPECT_THAT(use(processes, groups).reason, testing::HasSubstr("ranks 0 and 1 share GPU a card of "));
                       std::vector<at::Tensor> values = {at::full({3}, 1.0F)};
                       processes.sum(values);
                       EXPECT_TRUE(values[0].eq(2).all().item<bool>());
                       EXPECT_THROW((void)processes.use_groups(at::kCPU, &groups, "", "nccl"), ConfigError);
                       EXPECT_EQ(processes.use_device(at::kCPU, "auto").reason, "the ranks compute on CPUs");
                       EXPECT_THAT(groups.calls->all, testing::IsEmpty());
                     }),
            none(2));
}

}  // namespace
}  // namespace millrace::distributed
