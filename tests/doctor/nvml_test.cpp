#include "millrace/doctor/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "millrace/doctor/sampler.h"

namespace millrace::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<Nvml> fake() {
  std::string why;
  auto nvml = Nvml::open(why, FAKE_NVML);
  EXPECT_NE(nvml, nullptr) << why;
  return nvml;
}

TEST(NvmlTest, SaysWhatTheDriverSays) {
  const auto nvml = fake();
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->driver(), "550.54.15");
  EXPECT_EQ(nvml->count(), 2);
  const auto idle = nvml->read(0), hot = nvml->read(1);
  ASSERT_TRUE(idle && hot);
  EXPECT_EQ(idle->name, "NVIDIA Test 80GB");
  EXPECT_EQ(idle->capability, std::pair(9, 0));
  EXPECT_EQ(idle->utilisation, 0.37);
  EXPECT_EQ(idle->memory_used, 12'000'000'000U);
  EXPECT_EQ(idle->memory_total, 80'000'000'000U);
  EXPECT_EQ(idle->celsius, 41);
  EXPECT_THAT(idle->held_back, IsEmpty()) << "an idle GPU is not held back";
  EXPECT_EQ(hot->mhz, 1200);
  EXPECT_EQ(hot->most_mhz, 1980);
  EXPECT_THAT(hot->held_back, testing::UnorderedElementsAre("power limit", "heat (hardware)"));
  EXPECT_FALSE(hot->watts) << "what the driver can't tell is left out";
  EXPECT_FALSE(nvml->read(2));
}

TEST(NvmlTest, CudaCountsAmongTheGpusThatItSees) {
  const auto nvml = fake();
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->read(0, "1,0")->celsius, 91);
  EXPECT_EQ(nvml->read(1, "1,0")->celsius, 41);
  EXPECT_EQ(nvml->read(0, "GPU-b")->celsius, 91);
  for (const char* none : {"", "-1", "GPU-c", "x", "0 1"}) EXPECT_FALSE(nvml->read(0, none)) << none;
  EXPECT_FALSE(nvml->read(1, "0"));
  EXPECT_FALSE(nvml->read(1, "0,nonsense"));
}

TEST(NvmlTest, WhereCudaIsInUseItSaysWhichGpuANumberMeans) {
  const auto nvml = fake();
  ASSERT_NE(nvml, nullptr);
  EXPECT_EQ(nvml->read(0)->celsius, 41) << "the order of the driver";
  void* const cuda = ::dlopen(FAKE_CUDA, RTLD_NOW);
  ASSERT_NE(cuda, nullptr);
  EXPECT_EQ(nvml->read(0)->celsius, 91) << "the fastest first";
  EXPECT_EQ(nvml->read(1)->celsius, 41);
  EXPECT_EQ(nvml->read(0, "0,1")->celsius, 91);
  EXPECT_EQ(nvml->read(0, "GPU-b")->celsius, 91) << "an id needs no number";
  EXPECT_FALSE(nvml->read(2));
  ::dlclose(cuda);
  EXPECT_EQ(nvml->read(0)->celsius, 41);
}

TEST(NvmlTest, WithoutALibraryOrADriverOneSentenceSaysSo) {
  std::string why;
  EXPECT_EQ(Nvml::open(why, "libnot-there.so.1"), nullptr);
  EXPECT_EQ(why, "no NVIDIA driver reports GPUs (libnot-there.so.1 is not there)");
  EXPECT_EQ(Nvml::open(why, "libc.so.6"), nullptr);
  EXPECT_EQ(why, "libc.so.6 can't be used: it lacks the function nvmlInit_v2");
  ::setenv("FAKE_NVML_FAILS", "1", 1);
  EXPECT_EQ(Nvml::open(why, FAKE_NVML), nullptr);
  ::unsetenv("FAKE_NVML_FAILS");
  EXPECT_THAT(why, HasSubstr("Driver Not Loaded"));
}

TEST(NvmlTest, TheSamplerSeesTheRunsGpu) {
  Sampler sampler("/", fake(), 1);
  EXPECT_FALSE(sampler.gpu()) << "before the first look";
  sampler.look();
  sampler.look();
  ASSERT_TRUE(sampler.gpu());
  EXPECT_EQ(sampler.gpu()->utilisation, 0.99);
  const auto reading = sampler.take();
  ASSERT_TRUE(reading && reading->gpu);
  EXPECT_EQ(reading->gpu->utilisation, 0.99);
  EXPECT_THAT(reading->gpu->held_back, testing::UnorderedElementsAre("power limit", "heat (hardware)"));
  const Json json = reading->to_json();
  EXPECT_EQ(json["gpu"]["capability"], "9.0");
  EXPECT_EQ(json["gpu"]["mhz"], 1200);
  sampler.look();
  EXPECT_TRUE(sampler.take()->gpu);
}

}  // namespace
}  // namespace millrace::doctor
