#include "millrace/device/device.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/device/detail/plugin.h"

namespace millrace::device {
namespace {

using testing::HasSubstr;

class FakeGpus final : public Backend {
 public:
  explicit FakeGpus(int count) : count_(count) {}
  [[nodiscard]] int device_count() const override { return count_; }
  [[nodiscard]] std::string device_name(int index) const override {
    return "GPU " + std::string(1, static_cast<char>('A' + index));
  }
  [[nodiscard]] std::pair<int, int> compute_capability(int) const override { return {9, 0}; }
  [[nodiscard]] bool has_fast_bf16(int) const override { return true; }
  void synchronize(int) override {}
  void pin(std::byte*, std::size_t) override {}
  void unpin(std::byte*) noexcept override {}

 private:
  [[nodiscard]] MemoryCounters read_memory(int) const override { return {}; }
  int count_;
};

std::string refusal(const std::string& wish, int local_rank, const Backend* cuda) {
  try {
    (void)detail::choose(wish, local_rank, cuda, "no driver", false);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Choose, AutoTakesTheRanksGpu) {
  const FakeGpus gpus(2);
  const Choice choice = detail::choose("auto", 1, &gpus, "", true);
  EXPECT_EQ(choice.device, c10::Device("cuda:1"));
  EXPECT_EQ(choice.reason, "GPU B, compute capability 9.0");
  EXPECT_EQ(choice.warning, "");
  EXPECT_EQ(detail::choose("cuda", 0, &gpus, "", true).device, c10::Device("cuda:0"));
  EXPECT_EQ(detail::choose("cuda:0", 1, &gpus, "", true).device, c10::Device("cuda:0"));
}

TEST(Choose, AutoWithoutAUsableGpuSaysWhy) {
  const Choice quiet = detail::choose("auto", 0, nullptr, "no driver", false);
  EXPECT_TRUE(quiet.device.is_cpu());
  EXPECT_EQ(quiet.reason, "no GPU to use: no driver");
  EXPECT_EQ(quiet.warning, "");
  const Choice loud = detail::choose("auto", 0, nullptr, "this build has no CUDA plugin", true);
  EXPECT_TRUE(loud.device.is_cpu());
  EXPECT_EQ(loud.warning, "this machine has a GPU, and the run will not use it: this build has no CUDA plugin");
}

TEST(Choose, CpuIsNeverQuestioned) {
  const FakeGpus gpus(2);
  const Choice choice = detail::choose("cpu", 0, &gpus, "", true);
  EXPECT_TRUE(choice.device.is_cpu());
  EXPECT_EQ(choice.warning, "");
}

TEST(Choose, RefusalsNameTheDevicesThereAre) {
  const FakeGpus one(1);
  const FakeGpus two(2);
  EXPECT_EQ(refusal("gpu", 0, &one),
            "ConfigError  device.name \"gpu\" is no device\n"
            "  where    devices: cpu, cuda:0 (GPU A)\n"
            "  next     use auto, cpu, cuda or cuda:<number>");
  EXPECT_EQ(refusal("cuda:1", 0, nullptr),
            "ConfigError  device.name \"cuda:1\" needs a GPU that this program can use\n"
            "  where    devices: cpu; no cuda: no driver\n"
            "  next     use auto, cpu");
  EXPECT_THAT(refusal("cuda:2", 0, &two), HasSubstr("needs GPU 2, and there are 2"));
  EXPECT_THAT(refusal("cuda", 1, &one), HasSubstr("needs GPU 1, and there is 1"));
  for (const char* word : {"", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "CPU"}) {
    EXPECT_THAT(refusal(word, 0, &two), HasSubstr("is no device")) << word;
  }
}

TEST(Backends, CpuIsAlwaysThere) {
  EXPECT_EQ(&backend_of(c10::Device("cpu")), &cpu());
  EXPECT_EQ(cpu().device_count(), 1);
  EXPECT_EQ(cpu().device_name(0), cpu_info().name);
  EXPECT_EQ(cpu().compute_capability(0), std::pair(0, 0));
  cpu().synchronize(0);
}

TEST(Backends, OtherDevicesAreDeviceErrors) {
  try {
    (void)backend_of(c10::Device("mps"));
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("device mps can't be used: Millrace drives CPUs and NVIDIA GPUs only"));
    EXPECT_THAT(error.what(), HasSubstr("next     set device.name to one of them, or to auto"));
  }
}

TEST(Backends, CudaIsThereOrSaysWhyNot) {
  std::string reason = "unset";
  Backend* const backend = cuda(&reason);
  EXPECT_EQ(backend == nullptr, !reason.empty()) << reason;
  EXPECT_EQ(cuda(), backend);
}

TEST(Backends, PluginThatDoesNotLoadSaysWhy) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "plugin_garbage";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / detail::kPluginFile) << "not a library";
  std::string reason;
  EXPECT_EQ(detail::open_plugin({folder / "missing", folder}, reason), nullptr);
  EXPECT_THAT(reason, HasSubstr("the CUDA plugin does not load: "));
  EXPECT_EQ(detail::open_plugin({folder / "missing"}, reason), nullptr);
  EXPECT_EQ(reason, "this build has no CUDA plugin (libmillrace_cuda.so)");
  std::filesystem::remove_all(folder);
}

TEST(Memory, QueriesAreCounted) {
  const std::uint64_t before = memory_queries();
  const MemoryCounters counters = cpu().memory(0);
  EXPECT_EQ(memory_queries(), before + 1);
  EXPECT_GT(counters.allocated_bytes, 1U << 20U);
  EXPECT_GE(counters.peak_bytes + (1U << 20U), counters.allocated_bytes);
  EXPECT_GT(counters.total_bytes, counters.allocated_bytes);
}

TEST(Memory, PeakRemembersWhatWasFreed) {
  constexpr std::size_t kBytes = 64U << 20U;
  const std::uint64_t before = peak_resident_bytes();
  {
    std::vector<char> block(kBytes, 1);
    EXPECT_GE(resident_bytes() + (8U << 20U), kBytes);
    EXPECT_NE(block[kBytes / 2], 0);
  }
  EXPECT_GE(peak_resident_bytes(), std::max<std::uint64_t>(before, kBytes));
  EXPECT_GT(available_memory_bytes(), 0U);
}

long faults_of_second_use() {
  constexpr std::size_t kBytes = 48U << 20U;
  const auto use = [] {
    auto* const block = static_cast<char*>(std::malloc(kBytes));
    std::memset(block, 1, kBytes);
    asm volatile("" : : "r"(block) : "memory");  // the compiler may not see that nobody reads the block
    std::free(block);
  };
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  use();
  const long before = faults();
  use();
  return faults() - before;
}

// In children: the switch changes the whole process, and this one's allocator has a history.
TEST(MemoryDeathTest, KeptMemoryIsNotFaultedInAgain) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  constexpr long kPages = (48L << 20) / 4096;
  EXPECT_EXIT(std::exit(faults_of_second_use() > kPages / 2 ? 7 : 0), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        keep_freed_memory();
        std::exit(faults_of_second_use() < kPages / 20 ? 7 : 0);
      },
      testing::ExitedWithCode(7), "");
}

TEST(Cpu, InfoIsPlausible) {
  const Cpu& cpu = cpu_info();
  EXPECT_GE(cpu.physical_cores, 1);
  EXPECT_GE(cpu.logical_cores, cpu.physical_cores);
  EXPECT_THAT(cpu.capability, testing::AnyOf("DEFAULT", "AVX2", "AVX512"));
  EXPECT_TRUE(!cpu.avx512_bf16 || cpu.avx512);
  EXPECT_EQ(&cpu_info(), &cpu);
}

TEST(Cpu, SetThreadsSetsAtens) {
  const int before = at::get_num_threads();
  set_threads(3);
  EXPECT_EQ(at::get_num_threads(), 3);
  set_threads(0);
  EXPECT_EQ(at::get_num_threads(), 1);
  set_threads(before);
}

}  // namespace
}  // namespace millrace::device
