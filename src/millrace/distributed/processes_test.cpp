// Tests ranks that find each other. They are threads of one process, each with its own store and connections.
#include "millrace/distributed/processes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <latch>
#include <limits>
#include <mutex>

#include "millrace/base/error.h"
#include "millrace/distributed/detail/address.h"
#include "millrace/distributed/detail/test_ranks.h"

namespace millrace::distributed {
namespace {

class ProcessesOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, ProcessesOf, testing::Values(2, 3, 4));

TEST_P(ProcessesOf, GatherGivesAllRanksTheSameValues) {
  const int world = GetParam();
  EXPECT_EQ(on_ranks(world, free_port(),
                     [&](Processes& processes) {
                       const int rank = processes.ranks().rank;
                       // Rank 1 sends a text that is longer than its slot in the first round.
                       const std::string text(rank == 1 ? 5000 : 3, static_cast<char>('a' + rank));
                       const auto all = processes.gather({{"rank", rank}, {"text", text}, {"nan", std::nan("")}});
                       ASSERT_EQ(all.size(), static_cast<std::size_t>(world));
                       for (int other = 0; other < world; ++other) {
                         const Json& value = all[static_cast<std::size_t>(other)];
                         EXPECT_EQ(value.at("rank"), other);
                         EXPECT_EQ(value.at("text").get<std::string>().size(), other == 1 ? 5000U : 3U);
                         EXPECT_TRUE(std::isnan(value.at("nan").get<double>()));
                       }
                       EXPECT_TRUE(processes.any(rank == world - 1));
                       EXPECT_FALSE(processes.any(false));
                       EXPECT_EQ(processes.sum(rank + 1), world * (world + 1) / 2);
                       EXPECT_EQ(processes.from_root(rank), 0);
                     }),
            none(world));
}

TEST_P(ProcessesOf, SumsAreTheSameToTheBitAndKeepTypesAndShapes) {
  const int world = GetParam();
  std::mutex mutex;
  std::vector<at::Tensor> results;
  EXPECT_EQ(on_ranks(world, free_port(),
                     [&](Processes& processes) {
                       const int rank = processes.ranks().rank;
                       const at::Tensor uneven = (at::arange(1001, at::kFloat) * (0.1 + rank)).sin();
                       std::vector<at::Tensor> values = {uneven.clone(), at::full({2, 3}, rank + 1, at::kLong),
                                                         at::full({}, 0.5 * rank, at::kDouble),
                                                         at::arange(12, at::kFloat).view({3, 4}).t()};
                       processes.sum(values);
                       EXPECT_TRUE(values[1].eq(world * (world + 1) / 2).all().item<bool>());
                       EXPECT_EQ(values[2].item<double>(), 0.5 * world * (world - 1) / 2);
                       EXPECT_TRUE(values[3].equal(at::arange(12, at::kFloat).view({3, 4}).t() * world));
                       const std::lock_guard lock(mutex);
                       results.push_back(values[0]);
                     }),
            none(world));
  for (const at::Tensor& other : results) EXPECT_TRUE(other.equal(results[0]));
}

TEST_P(ProcessesOf, BytesOfRankZeroReachAllUnchanged) {
  const int world = GetParam();
  EXPECT_EQ(on_ranks(world, free_port(),
                     [&](Processes& processes) {
                       const bool root = processes.ranks().rank == 0;
                       const float nan = std::numeric_limits<float>::quiet_NaN();
                       std::vector<at::Tensor> values = {at::tensor({root ? nan : 1.0F, root ? -0.0F : 2.0F}),
                                                         at::full({2, 2}, root ? 7 : 0, at::kLong),
                                                         at::full({3}, root, at::kBool)};
                       processes.share_from_root(values);
                       EXPECT_TRUE(std::isnan(values[0][0].item<float>()));
                       EXPECT_TRUE(std::signbit(values[0][1].item<float>()));
                       EXPECT_TRUE(values[1].eq(7).all().item<bool>());
                       EXPECT_TRUE(values[2].all().item<bool>());
                     }),
            none(world));
}

// Values of several types and layouts, values for more than one parcel, and values without bytes.
TEST_P(ProcessesOf, EachValueBecomesThatOfItsOwner) {
  const int world = GetParam();
  EXPECT_EQ(on_ranks(world, free_port(),
                     [&](Processes& processes) {
                       const int rank = processes.ranks().rank;
                       std::vector<at::Tensor> values;
                       std::vector<int> owners;
                       for (int i = 0; i < 4 * world; ++i) {
                         owners.push_back((i * 7) % world);
                         values.push_back(at::full({3, i % 3, 5}, 100 * rank + i, i % 2 == 0 ? at::kFloat : at::kLong));
                       }
                       owners.push_back(world - 1);
                       values.push_back(at::full({6'000'000}, rank, at::kFloat));
                       owners.push_back(world - 1);
                       values.push_back((at::arange(12, at::kFloat) + rank).view({3, 4}).t());
                       processes.share(values, owners);
                       for (int i = 0; i < 4 * world; ++i) {
                         const auto at = static_cast<std::size_t>(i);
                         EXPECT_TRUE(values[at].eq(100 * owners[at] + i).all().item<bool>()) << i;
                       }
                       EXPECT_TRUE(values[values.size() - 2].eq(world - 1).all().item<bool>());
                       EXPECT_TRUE(values.back().equal((at::arange(12, at::kFloat) + world - 1).view({3, 4}).t()));
                       processes.leave();
                       EXPECT_THROW(processes.share(values, owners), DistributedError);
                     }),
            none(world));
}

// Numbers whose sum depends on the order of addition: alone, together with others, and as bf16.
TEST_P(ProcessesOf, SumsAreThoseOfTheRanksInTheirOrderWhateverTravelsWithThem) {
  const int world = GetParam();
  const auto of = [](int rank) {
    return ((at::arange(1001, at::kFloat) + 17 * rank) * (0.37 + rank)).sin() * std::pow(10, rank);
  };
  at::Tensor expected = of(0);
  for (int rank = 1; rank < world; ++rank) expected = expected + of(rank);
  EXPECT_EQ(
      on_ranks(world, free_port(),
               [&](Processes& processes) {
                 const at::Tensor mine = of(processes.ranks().rank);
                 std::vector<at::Tensor> alone = {mine.clone()}, together = {at::full({77}, 1.0F), mine.clone(), mine.clone()};
                 processes.sum(alone);
                 processes.sum(together);
                 EXPECT_TRUE(alone[0].equal(expected));
                 EXPECT_TRUE(together[1].equal(expected));
                 EXPECT_TRUE(together[2].equal(expected));
                 std::vector<at::Tensor> halves = {at::full({5}, 1.0F, at::kBFloat16)};
                 processes.sum(halves);
                 EXPECT_TRUE(halves[0].eq(world).all().item<bool>());
               }),
      none(world));
}

TEST(Processes, ARankThatIsGoneIsNamed) {
  std::latch told(2);
  const auto errors = on_ranks(3, free_port(), [&told](Processes& processes) {
    static_cast<void>(processes.any(false));
    if (processes.ranks().rank == 1) return;  // the return closes the connections of rank 1
    try {
      for (int i = 0; i < 3; ++i) static_cast<void>(processes.any(false));
    } catch (const DistributedError&) {
      told.arrive_and_wait();  // keeps rank 0, which holds the store, until the others are done
      throw;
    }
  });
  EXPECT_THAT(errors[0], testing::HasSubstr("lost rank 1 "));
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2], testing::HasSubstr("lost rank 1 "));
}

TEST(Processes, RanksThatDoNotComeAreNamed) {
  const ProcessesOptions hasty{.join_s = 1, .timeout_s = 60};
  try {
    const Processes alone(place(0, 3, free_port()), hasty);
    FAIL();
  } catch (const DistributedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks 1 and 2 of 3 did not join within 1 s"));
  }
}

// Where the name of rank 0's machine is a loopback address on that machine itself, other machines can't reach it.
TEST(Processes, AMeetingPointThatOtherMachinesCanNotReachIsNamed) {
  const auto refusal = [](int ranks_here) -> std::string {
    Rendezvous rendezvous = place(0, 2, free_port());
    rendezvous.ranks.local_world_size = ranks_here;
    try {
      const Processes alone(rendezvous, {.join_s = 1, .timeout_s = 60});
    } catch (const DistributedError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(1), testing::HasSubstr("127.0.0.1 is a loopback address"));
  EXPECT_THAT(refusal(2), testing::HasSubstr("look at their output"));
}

TEST(Processes, ATakenPortIsSaid) {
  int port = 0;
  const int taken = listen_on("127.0.0.1", port);
  try {
    const Processes alone(place(0, 2, port), {.join_s = 1});
    FAIL();
  } catch (const DistributedError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("port " + std::to_string(port) + " of 127.0.0.1 is taken"));
  }
  ::close(taken);
}

TEST(Processes, AMachineThatIsNotThisOneIsSaid) {
  Rendezvous elsewhere = place(0, 2, 29500);
  elsewhere.host = "192.0.2.1";  // an address that is reserved for documentation, so no machine has it
  EXPECT_THROW(Processes(elsewhere, {.join_s = 1}), DistributedError);
  elsewhere.host = "no-such-machine.invalid";
  EXPECT_THROW(Processes(elsewhere, {.join_s = 1}), DistributedError);
}

}  // namespace
}  // namespace millrace::distributed
