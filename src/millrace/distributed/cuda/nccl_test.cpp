// Tests ranks whose GPUs add up tensors directly. A test is skipped, and counted as skipped, if it needs more GPUs than there
// are.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/device/device.h"
#include "millrace/distributed/detail/device_groups.h"
#include "millrace/distributed/detail/gradient_buckets.h"
#include "millrace/distributed/detail/ordered_sum.h"
#include "millrace/distributed/detail/test_ranks.h"

namespace millrace::distributed {
namespace {

constexpr int kMost = 4;  // largest number of ranks

at::Device gpu(int index) { return {at::kCUDA, static_cast<c10::DeviceIndex>(index)}; }

class Nccl : public testing::Test {
 protected:
  // Why a test with this many GPUs can't run here; "" if it can.
  std::string missing(int gpus) {
    std::string reason;
    device::Backend* const cuda = device::cuda(&reason);
    if (cuda == nullptr) return reason;
    there_are_ = cuda->device_count();
    if (there_are_ < gpus) return std::to_string(gpus) + " GPUs are needed, and there is " + std::to_string(there_are_);
    groups_ = cuda->rank_groups(reason);
    return groups_ == nullptr ? reason : "";
  }
  [[nodiscard]] int world() const { return std::min(there_are_, kMost); }

  int there_are_ = 0;
  device::RankGroups* groups_ = nullptr;
};

struct Model {
  explicit Model(at::Device device) {
    for (const std::int64_t size : {7, 1024, 4099}) {
      const at::Tensor values = (at::arange(size, at::kFloat) * 0.37).sin();
      parameters.push_back(values.to(device).set_requires_grad(true));
    }
  }
  void backward(double factor) const {
    at::Tensor loss = at::full({}, 0.0F, parameters[0].options());
    for (const at::Tensor& parameter : parameters) loss = loss + (parameter * factor).sin().sum();
    loss.backward();
  }
  std::vector<at::Tensor> parameters;
};

// With a single rank each sum equals the rank's value, to the bit, by every transport.
TEST_F(Nccl, AWorldOfOneRankChangesNoBit) {
  if (const std::string why = missing(1); !why.empty()) GTEST_SKIP() << why;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  DeviceGroups groups(*groups_, gpu(0),
                      {.store = store, .rank = 0, .world_size = 1, .gpu = 0, .timeout = std::chrono::minutes(1)});
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::minutes(1));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto words = c10::make_intrusive<c10d::ProcessGroupGloo>(store, 0, 1, options);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
    const at::Tensor mine = (at::arange(1001, at::kFloat) * 7.3).sin().mul(100).to(type);
    const at::Tensor sum = mine.to(gpu(0));
    OrderedSum(groups.sums(), groups.sums(), sum).finish();
    EXPECT_TRUE(sum.cpu().equal(mine)) << type;
  }
  const Model plain(gpu(0)), summed(gpu(0));
  const auto connection = groups.connect("gradients");
  GradientBuckets buckets({connection, connection, groups.second_stream(), words}, summed.parameters, {.bucket_bytes = 1000},
                          [](const std::function<void()>& collective) { collective(); });
  for (int step = 0; step < 3; ++step) {
    for (const Model* model : {&plain, &summed}) {
      for (const at::Tensor& parameter : model->parameters) parameter.mutable_grad() = at::Tensor();
    }
    buckets.begin(at::full({}, 1.0F, at::TensorOptions(gpu(0))));
    plain.backward(1.1 + step);
    summed.backward(1.1 + step);
    buckets.send();
    const std::vector<at::Tensor> sums = buckets.receive();
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_TRUE(sums[i].equal(plain.parameters[i].grad())) << step << " " << i;
  }
  EXPECT_GT(buckets.take_traffic().early_buckets, 0);
}

// Values are added in the order of the ranks, on the GPU as on the CPU. Other tensors that travel with them do not change the
// result.
TEST_F(Nccl, SumsAreThoseOfTheRanksInTheirOrder) {
  if (const std::string why = missing(2); !why.empty()) GTEST_SKIP() << why;
  const auto of = [](int rank) {
    return ((at::arange(1001, at::kFloat) + 17 * rank) * (0.37 + rank)).sin() * std::pow(10, rank);
  };
  at::Tensor expected = of(0);
  for (int rank = 1; rank < world(); ++rank) expected = expected + of(rank);
  EXPECT_EQ(on_ranks(world(), free_port(),
                     [&](Processes& processes) {
                       const int rank = processes.ranks().rank;
                       EXPECT_EQ(processes.use_device(gpu(rank), "auto").value, "nccl");
                       std::vector<at::Tensor> values = {
                           of(rank).to(gpu(rank)), at::full({3}, rank, at::kLong),
                           at::full({77}, 1.0F, at::TensorOptions(gpu(rank))),
                           at::full({}, 0.5 * rank, at::TensorOptions(gpu(rank)).dtype(at::kDouble))};
                       processes.sum(values);
                       EXPECT_TRUE(values[0].cpu().equal(expected));
                       EXPECT_TRUE(values[1].eq(world() * (world() - 1) / 2).all().item<bool>());
                       EXPECT_TRUE(values[2].eq(world()).all().item<bool>());
                       std::vector<at::Tensor> shared = {of(rank).to(gpu(rank)), of(rank)};
                       processes.share(shared, {1, 0});
                       EXPECT_TRUE(shared[0].cpu().equal(of(1)));
                       EXPECT_TRUE(shared[1].equal(of(0)));
                     }),
            none(world()));
}

TEST_F(Nccl, GradientsAreThoseOfGlooAndLeaveEarly) {
  if (const std::string why = missing(2); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(on_ranks(world(), free_port(),
                     [&](Processes& processes) {
                       const int rank = processes.ranks().rank;
                       EXPECT_EQ(processes.use_device(gpu(rank), "nccl").value, "nccl");
                       const Model on_cpu(at::kCPU), on_gpu(gpu(rank));
                       const auto over_gloo = processes.gradient_sums(on_cpu.parameters, {.bucket_bytes = 1000});
                       const auto over_nccl = processes.gradient_sums(on_gpu.parameters, {.bucket_bytes = 1000});
                       for (int step = 0; step < 3; ++step) {
                         std::array<std::vector<at::Tensor>, 2> sums;
                         for (const bool nccl : {false, true}) {
                           const Model& model = nccl ? on_gpu : on_cpu;
                           GradientSums& travels = nccl ? *over_nccl : *over_gloo;
                           for (const at::Tensor& parameter : model.parameters) parameter.mutable_grad() = at::Tensor();
                           travels.begin(at::full({}, 1.5 + rank, model.parameters[0].options().requires_grad(false)));
                           model.backward(0.3 + rank);
                           travels.send();
                           for (const at::Tensor& sum : travels.receive()) sums[nccl ? 1 : 0].push_back(sum.cpu().clone());
                         }
                         for (std::size_t i = 0; i < sums[0].size(); ++i)
                           EXPECT_TRUE(sums[1][i].allclose(sums[0][i], 1e-6, 1e-6)) << step << " " << i;
                       }
                       const GradientSums::Traffic traffic = over_nccl->take_traffic();
                       EXPECT_EQ(traffic.early_buckets, traffic.buckets);
                     }),
            none(world()));
}

TEST_F(Nccl, ARankThatIsGoneIsNamedAndTheOthersDoNotHang) {
  if (const std::string why = missing(2); !why.empty()) GTEST_SKIP() << why;
  const auto errors = on_ranks(2, free_port(), [&](Processes& processes) {
    const int rank = processes.ranks().rank;
    EXPECT_EQ(processes.use_device(gpu(rank), "nccl").value, "nccl");
    if (rank == 1) return processes.leave();
    std::vector<at::Tensor> values = {at::full({1 << 20}, 1.0F, at::TensorOptions(gpu(rank)))};
    processes.sum(values);  // the other rank never takes part
    try {
      static_cast<void>(processes.any(false));
    } catch (const DistributedError&) {
      EXPECT_TRUE(processes.has_cut_sums());
      (void)values[0].cpu();  // the stream continues
      throw;
    }
  });
  EXPECT_THAT(errors[0], testing::HasSubstr("lost rank 1 "));
}

}  // namespace
}  // namespace millrace::distributed
