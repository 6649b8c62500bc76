// Transfers to and from the device during its work: batches, snapshots, activations. The stand-in reports a copy that no event
// orders, and memory that is released too early.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <numeric>

#include "fixture.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/memory/block.h"
#include "millrace/memory/offload.h"
#include "millrace/metrics/board.h"
#include "millrace/snapshot/writer.h"
#include "millrace/train/step/feed.h"
#include "millrace/train/step/pinned_arena.h"

namespace millrace::standin {
namespace {

constexpr std::int64_t kSamples = 50;

data::Pipeline numbers() {
  std::vector<float> values(kSamples * 5);
  std::iota(values.begin(), values.end(), 1.0F);
  std::vector<std::int16_t> labels(kSamples);
  std::iota(labels.begin(), labels.end(), std::int16_t{100});
  std::vector<data::MemoryArray> arrays;
  arrays.push_back(data::memory_array<std::int16_t>("label", {}, std::move(labels)));
  arrays.push_back(data::memory_array<float>("value", {5}, std::move(values)));
  return data::single(std::make_shared<data::MemorySource>(std::move(arrays)));
}

void expect_no_wait() {
  EXPECT_EQ(counted(Count::pageable_copies), 0U);
  EXPECT_EQ(counted(Count::blocking_copies), 0U);
  EXPECT_EQ(counted(Count::read_backs), 0U);
  EXPECT_EQ(counted(Count::event_waits), 0U);
  EXPECT_EQ(counted(Count::stream_waits), 0U);
  EXPECT_EQ(counted(Count::device_waits), 0U);
}

class Way : public Standin {};

TEST_F(Way, BatchesComeInOneCopyEachAndTheHostWaitsForNothing) {
  const SlotMemory slots = slot_memory({}, kGpu, 1, nullptr);
  ASSERT_NE(slots.arena, nullptr);
  data::Loader loader(numbers(), {.batch_size = 4, .shuffle = true, .seed = 5, .readers = 0, .arena = slots.arena});
  Feed feed(loader, Split::train, kGpu, /*ahead=*/true);
  std::vector<at::Tensor> sums;
  std::vector<std::int64_t> expected;
  constexpr int kSteps = 30;
  const std::uint64_t allocated = counted(Count::allocations);
  int steps = 0;
  while (steps < kSteps) {
    std::optional<Batch> batch = feed.next();
    if (!batch) continue;
    for (const std::int64_t index : batch->groups()[0].indices) expected.push_back(100 + index);
    sums.push_back((*batch)["label"].to(at::kLong));
    EXPECT_EQ((*batch)["value"].device(), kGpu);
    (*batch)["value"].mul_(2);  // as a recipe may
    batch.reset();
    feed.look_ahead();
    ++steps;
  }
  EXPECT_EQ(counted(Count::to_device), static_cast<std::uint64_t>(kSteps) + 1);
  EXPECT_LE(counted(Count::allocations) - allocated, static_cast<std::uint64_t>(kSteps) + 4) << "one for each sum";
  expect_no_wait();
  const at::Tensor seen = at::cat(sums).cpu();
  EXPECT_EQ(std::vector<std::int64_t>(seen.const_data_ptr<std::int64_t>(), seen.const_data_ptr<std::int64_t>() + seen.numel()),
            expected);
}

TEST_F(Way, ABatchThatIsHeldIsNotOverwritten) {
  data::Loader loader(numbers(), {.batch_size = 4, .readers = 0});
  Feed feed(loader, Split::train, kGpu, /*ahead=*/true);
  std::vector<Batch> held;
  for (int step = 0; step < 6; ++step) {
    held.push_back(*feed.next());
    feed.look_ahead();
  }
  for (std::size_t step = 0; step < held.size(); ++step)
    EXPECT_EQ(held[step]["label"][0].item<std::int64_t>(), 100 + 4 * static_cast<std::int64_t>(step));
}

TEST_F(Way, WithoutTheSwitchABatchIsThereWhenItIsGiven) {
  data::Loader loader(numbers(), {.batch_size = 4, .readers = 0});
  Feed feed(loader, Split::train, kGpu, /*ahead=*/false);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ((*feed.next())["label"][0].item<std::int64_t>(), 100 + 4 * step);
    feed.look_ahead();
  }
  EXPECT_EQ(counted(Count::to_device), 3U);
}

TEST_F(Way, ASnapshotHoldsTheStateOfItsMomentAndNobodyWaits) {
  const std::filesystem::path run = "a_run";  // each test program has a folder of its own
  const at::Tensor weight = at::arange(1000, on_gpu());
  const at::Tensor last = at::arange(24, on_gpu()).reshape({1, 2, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto content = [&](std::int64_t step) {
    snapshot::Content now;
    now.step = step;
    now.models["model"] = {{"last", last}, {"weight", weight}};
    now.parts["optimizer"].tensors = {{"half", weight.to(at::kBFloat16)}};  // lives for as long as this call
    return now;
  };
  snapshot::Writer writer(Fs::real(), run, /*in_background=*/true);
  writer.make_room(content(0));
  writer.wait();
  EXPECT_FALSE(writer.take()) << "making room is no save";
  for (std::int64_t step = 1; step <= 3; ++step) {
    reset_accounts();
    writer.begin(content(step), {});
    weight.add_(1);  // the next step
    last.mul_(2);
    EXPECT_EQ(counted(Count::pageable_copies), 0U);
    EXPECT_EQ(counted(Count::blocking_copies), 0U);
    EXPECT_EQ(counted(Count::read_backs), 0U);
    writer.wait();
    const auto saved = writer.take();
    ASSERT_TRUE(saved && !saved->error);
    const snapshot::Content found = snapshot::load(Fs::real(), saved->path);
    const double grown = static_cast<double>(step) - 1;
    EXPECT_TRUE(found.models.at("model").at("weight").equal(at::arange(1000, at::kFloat).add(grown)));
    EXPECT_TRUE(found.parts.at("optimizer").tensors.at("half").equal(at::arange(1000, at::kFloat).add(grown).to(at::kBFloat16)));
    EXPECT_TRUE(found.models.at("model").at("last").equal(at::arange(24, at::kFloat).reshape({1, 2, 3, 4}).mul(1 << (step - 1))));
  }
}

TEST_F(Way, OffloadedActivationsComeBackAsTheyWere) {
  const auto gradients = [](std::optional<std::uint64_t> least_bytes) {
    std::vector<at::Tensor> weights;
    for (int layer = 0; layer < 6; ++layer)
      weights.push_back(at::arange(64 * 64, at::kFloat).reshape({64, 64}).add(layer).sin().div(8).to(kGpu).requires_grad_());
    at::Tensor x = at::arange(32 * 64, at::kFloat).reshape({32, 64}).cos().to(kGpu);
    std::uint64_t moved = 0;
    reset_accounts();
    {
      std::optional<memory::OffloadScope> offload;
      if (least_bytes) offload.emplace(kGpu, *least_bytes, weights);
      for (const at::Tensor& weight : weights) {
        const std::vector<at::Tensor> halves =
            at::gelu(at::linear(x, weight)).chunk(2, 1);  // not contiguous: gathered on their way
        x = at::cat({at::mul(halves[0], halves[1].sigmoid()), halves[1]}, 1);
      }
      if (offload) moved = offload->moved_bytes();
    }
    x.sum().backward();
    expect_no_wait();
    std::vector<at::Tensor> all;
    for (const at::Tensor& weight : weights) all.push_back(weight.grad().cpu());
    return std::pair(all, moved);
  };
  memory::take_over_backward_passes();  // as a run does, whose scopes may come when memory runs out
  const auto [plain, none] = gradients(std::nullopt);
  const auto [moved, some] = gradients(32 * 32 * 4);
  EXPECT_EQ(none, 0U);
  EXPECT_GE(some, 11U * 32 * 64 * 4);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(plain[i].equal(moved[i])) << i;
}

TEST_F(Way, WhatSeveralOperationsSavedTravelsOnce) {
  const at::Tensor weight = at::ones({64, 64}, on_gpu()).requires_grad_();
  const at::Tensor x = at::ones({32, 64}, on_gpu());
  std::uint64_t moved = 0;
  at::Tensor y;
  {
    const memory::OffloadScope offload(kGpu, 1, {weight});
    y = at::linear(x, weight).add(at::linear(x.narrow(0, 0, 16).repeat({2, 1}), weight)).add(at::linear(x, weight)).sum();
    moved = offload.moved_bytes();
  }
  EXPECT_EQ(moved, 2 * x.nbytes());  // x, and the copy that repeat() made
  y.backward();
  EXPECT_EQ(counted(Count::to_device), 2U);
  EXPECT_TRUE(weight.grad().cpu().equal(at::full({64, 64}, 96.0F)));
}

// As without the scope: LibTorch itself looks at no versions where there are hooks.
TEST_F(Way, ATensorThatIsChangedAfterItWasSavedIsRefused) {
  const at::Tensor a = at::ones({64}, on_gpu()).requires_grad_();
  const at::Tensor x = at::full({64}, 2.0F, on_gpu());
  at::Tensor y;
  {
    const memory::OffloadScope offload(kGpu, 1, {a});
    y = a.mul(x).sum();
  }
  x.mul_(2);
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST_F(Way, AGraphThatIsNeverWalkedLeavesNothingBehind) {
  const at::Tensor weight = at::ones({64, 64}, on_gpu()).requires_grad_();
  {
    const memory::OffloadScope offload(kGpu, 1, {weight});
    const at::Tensor y = at::gelu(at::linear(at::ones({32, 64}, on_gpu()), weight));
    EXPECT_GT(offload.moved_bytes(), 0U);
  }
  backend_->synchronize(0);
  EXPECT_EQ(backend_->memory(0).allocated_bytes, weight.nbytes());
}

TEST_F(Way, LabelsOfTheDeviceAreThereBeforeTheHostCountsThem) {
  const at::Tensor predicted = at::arange(3, at::kLong);
  metrics::Board board;
  board.add_classification(predicted, predicted.to(kGpu), {.classes = {"a", "b", "c"}});
  const metrics::Confusion table = board.tables().at(0);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(table.counts[i], i % 4 == 0 ? 1 : 0) << i;
}

}  // namespace
}  // namespace millrace::standin
