#include "millrace/doctor/detail/sound_run.h"
#include "millrace/doctor/gpu_use.h"

namespace millrace::doctor {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Rules, TensorsThatAreOnTheWrongDevice) {
  Evidence e = sound();
  e.census =
      Evidence::Census{.operations = 200, .seconds = 0.09, .copies = 3, .copied_seconds = 0.018, .copied_by = "aten::to [8]"};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "there is one device";
  e.on_gpu = true;
  const Finding finding = first(e, "wrong_device");
  EXPECT_THAT(finding.what, HasSubstr("copies 3 tensors between devices in addition to its batch, the largest by aten::to [8]"));
  expect_gain(finding, 0.2 * 9 / 9.5);
  e.census->copies = 0;
  EXPECT_THAT(findings_of(e), IsEmpty());
}

TEST(Rules, AnAllocatorThatKeepsMuchMoreThanTensorsHeld) {
  Evidence e = sound();
  e.memory = {.used = 14'000'000'000, .room = 16'000'000'000, .step_peak = 6'000'000'000, .most_held = 8'000'000'000};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "no allocator of a GPU";
  e.on_gpu = true;
  const Finding finding = first(e, "fragmented");
  EXPECT_EQ(finding.key, "memory.cleanup_every");
  EXPECT_THAT(finding.what, HasSubstr("keeps 14 GB of 16 GB, but tensors never held more than 8.0 GB"));
  e.memory.most_held = 13'000'000'000;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "a validation needed it";
  e.memory = {.used = 3'000'000'000, .room = 16'000'000'000, .step_peak = 1'000'000'000};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "there is enough";
}

TEST(Rules, BatchesOfEverNewShapes) {
  Evidence e = sound();
  e.shapes = {.batches = 100, .fresh = 40, .all = 60, .latest = "x [*, 37, 64]"};
  EXPECT_THAT(first(e, "changing_shapes").what, HasSubstr("40 of the last 100 batches had a new shape, the latest x"));
  e.shapes.all = 20;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "some sizes are usual";
  e.shapes = {.batches = 100, .fresh = 8, .all = 300};
  EXPECT_THAT(findings_of(e), IsEmpty()) << "hardly any is new";
}

Sampler::MachineReading reading_of(double seconds, double utilisation, std::vector<std::string> held_back = {}) {
  Sampler::MachineReading reading;
  reading.seconds = seconds;
  reading.gpu = Nvml::Reading{};
  reading.gpu->utilisation = utilisation;
  reading.gpu->mhz = 1000 * utilisation;
  reading.gpu->most_mhz = 2000;
  reading.gpu->held_back = std::move(held_back);
  return reading;
}

TEST(GpuUse, IsAMeanByTimeAndOfTheStretchAlone) {
  GpuUse use;
  EXPECT_FALSE(gpu_between(use, use)) << "nobody looked";
  use.add(reading_of(30, 0.1));
  const GpuUse start = use;
  use.add(Sampler::MachineReading{.seconds = 100});
  EXPECT_FALSE(gpu_between(start, use)) << "a driver that tells nothing";
  use.add(reading_of(10, 0.9, {"heat"}));
  use.add(reading_of(20, 0.6, {"power"}));
  const auto gpu = gpu_between(start, use);
  ASSERT_TRUE(gpu);
  EXPECT_NEAR(gpu->utilisation, 0.7, 1e-9);
  EXPECT_NEAR(gpu->mhz, 700, 1e-6);
  EXPECT_EQ(gpu->most_mhz, 2000);
  EXPECT_THAT(gpu->held_back, testing::ElementsAre("power")) << "for most of it";
}

TEST(Rules, RanksThatWaitForOneOfThem) {
  Evidence e = sound();  // the loop takes 9.5 s
  e.ranks = {{.reduction = 2.1}, {.reduction = 0.2}, {.reduction = 2.1}};
  const Finding finding = first(e, "uneven_ranks");
  EXPECT_THAT(finding.what, HasSubstr("20 % of the time for rank 1, whose steps take longer"));
  expect_gain(finding, 0.2 * 2 / 3);
  e.ranks[1].data_wait = 2;
  EXPECT_THAT(first(e, "uneven_ranks").what, HasSubstr("which itself waits for data"));
  for (Evidence::RankTimes& rank : e.ranks) rank.reduction = 2;
  EXPECT_THAT(findings_of(e), IsEmpty()) << "a slow network is slow for all";
}

}  // namespace
}  // namespace millrace::doctor
