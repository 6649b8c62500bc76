#include "millrace/device/device.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/device/detail/plugin.h"
#include "millrace/device/preflight.h"
#include "millrace/system/instructions.h"
#include "millrace/system/process_limits.h"
#include "tests/support/refusal.h"

namespace millrace::device {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FakeGpus final : public Backend {
 public:
  explicit FakeGpus(int count, std::pair<int, int> oldest = {9, 0}) : count_(count), oldest_(oldest) {}
  [[nodiscard]] int device_count() const override { return count_; }
  [[nodiscard]] std::string device_name(int index) const override {
    return "GPU " + std::string(1, static_cast<char>('A' + index));
  }
  [[nodiscard]] std::pair<int, int> compute_capability(int index) const override {
    return index + 1 == count_ ? oldest_ : std::pair(9, 0);
  }
  [[nodiscard]] bool has_fast_bf16(int) const override { return true; }
  [[nodiscard]] Backend::Nature nature(int) const override { return {}; }
  [[nodiscard]] Backend::DriverMemory driver_memory(int) const override { return {}; }
  void synchronize(int) override {}
  [[nodiscard]] c10::Stream copy_stream(int index) override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
  }
  void pin(std::byte*, std::size_t) override {}
  void unpin(std::byte*) noexcept override {}

 private:
  [[nodiscard]] Backend::MemoryCounters read_memory(int) const override { return {}; }
  int count_;
  std::pair<int, int> oldest_;  // compute capability of the last GPU
};

std::string refusal(const std::string& wish, int local_rank, const Backend* cuda) {
  return millrace::refusal<ConfigError>([&] { (void)detail::choose(wish, local_rank, cuda, "no driver", false); });
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
  EXPECT_EQ(loud.warning, "this machine has a GPU, but the run will not use it: this build has no CUDA plugin");
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
            "ConfigError  device.name \"gpu\" is not a device\n"
            "  where    devices: cpu, cuda:0 (GPU A)\n"
            "  next     use auto, cpu, cuda or cuda:<number>");
  EXPECT_EQ(refusal("cuda:1", 0, nullptr),
            "ConfigError  device.name \"cuda:1\" needs a GPU that this program can use\n"
            "  where    devices: cpu; no cuda: no driver\n"
            "  next     use auto, cpu");
  EXPECT_THAT(refusal("cuda:2", 0, &two), HasSubstr("needs GPU 2, but there are 2"));
  EXPECT_THAT(refusal("cuda", 1, &one), AllOf(HasSubstr("needs GPU 1, but there is 1"), HasSubstr("set device.name=cuda:0 if")));
  EXPECT_THAT(refusal("auto", 2, &two), AllOf(HasSubstr("start no more ranks"), testing::Not(HasSubstr("cuda:0 if"))));
  for (const char* word : {"", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "CPU"}) {
    EXPECT_THAT(refusal(word, 0, &two), HasSubstr("is not a device")) << word;
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
    EXPECT_THAT(error.what(), HasSubstr("device mps can't be used: Millrace supports only CPUs and NVIDIA GPUs"));
    EXPECT_THAT(error.what(), HasSubstr("next     set device.name to one of them, or to auto"));
  }
}

TEST(Backends, CudaIsThereOrSaysWhyNot) {
  std::string reason = "unset";
  Backend* const backend = cuda(&reason);
  EXPECT_EQ(backend == nullptr, !reason.empty()) << reason;
  EXPECT_EQ(cuda(), backend);
  if (backend != nullptr) {
    EXPECT_GT(backend->device_count(), 0);
  } else if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    EXPECT_EQ(reason, "no NVIDIA driver (libcuda.so.1 is not there)");
  } else {
    EXPECT_THAT(reason, testing::AnyOf(HasSubstr("CUDA"), HasSubstr("GPU"), HasSubstr("driver")));
  }
}

// There is no code of the kernels for older GPUs, so a launch would end the run.
TEST(Backends, KernelsAreForGpusThatTheirCodeIsFor) {
  const kernels::DeviceTable own{};
  for (const auto& oldest : {std::pair(8, 0), std::pair(8, 9), std::pair(9, 0), std::pair(12, 0)})
    EXPECT_EQ(detail::kernels_for(FakeGpus(2, oldest), &own), &own) << oldest.first;
  EXPECT_EQ(detail::kernels_for(FakeGpus(2, {7, 5}), &own), nullptr);
  EXPECT_EQ(detail::kernels_for(FakeGpus(1), nullptr), nullptr);
}

TEST(Backends, AMissingGpuHasTheReasonOfCuda) {
  const auto why = [](int error, const char* visible = nullptr) {
    return detail::why_no_device(error, "what CUDA says", 12040, 13000, visible);
  };
  EXPECT_EQ(why(35), "the NVIDIA driver is for CUDA 12.4 and LibTorch needs CUDA 13.0: install a newer driver");
  EXPECT_EQ(why(802),
            "CUDA does not start: what CUDA says (error 802); GPUs that are linked by NVSwitch wait for the service "
            "nvidia-fabricmanager");
  EXPECT_EQ(why(999), "CUDA does not start: what CUDA says (error 999)");
  EXPECT_EQ(why(100), "the NVIDIA driver lists no GPU");
  EXPECT_EQ(why(100, ""), "the NVIDIA driver lists no GPU; CUDA_VISIBLE_DEVICES is \"\"");
  EXPECT_EQ(why(0, "5"), "the NVIDIA driver lists no GPU; CUDA_VISIBLE_DEVICES is \"5\"");
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
  const Backend::MemoryCounters counters = cpu().memory(0);
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
    asm volatile("" : : "r"(block) : "memory");  // makes the compiler believe that the block is used
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

// Runs in child processes, because the switch changes the whole process and this process's allocator is in use.
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
  EXPECT_TRUE(!cpu.avx512 || instructions() >= InstructionSet::avx512);
  EXPECT_TRUE(!cpu.amx_bf16 || asked_instructions().empty());
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

TEST(Threads, FarMoreThanTheCpusAreRefused) {
  EXPECT_GE(most_threads(), 16);
  EXPECT_GE(most_threads(), cpu_info().logical_cores);
  try {
    set_threads(most_threads() + 1);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("this process may use"));
    EXPECT_THAT(error.what(), HasSubstr("choose " + std::to_string(most_threads()) + " at most"));
  }
}

// Runs `body` in a separate process with this limit. Returns the message of its exception; "" if it throws no exception.
template <class Body>
std::string said_below(int resource, std::uint64_t most, Body body) {
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{most, most};
    std::string text;
    if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) text = "no limit";
    try {
      body();
    } catch (const std::exception& error) {
      text = error.what();
    }
    ::_exit(::write(pipe[1], text.data(), text.size()) < 0 ? 1 : 0);
  }
  ::close(pipe[1]);
  std::string text(4096, '\0');
  const ssize_t got = ::read(pipe[0], text.data(), text.size());
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? text : "died of " + std::to_string(status);
}

TEST(Threads, WithoutAddressSpaceForTheirStacksTheLimitIsNamed) {
  EXPECT_THAT(said_below(RLIMIT_AS, mapped_bytes() + (std::uint64_t{20} << 20U), [] { require_threads(64); }),
              AllOf(HasSubstr("of the 64 needed threads"), HasSubstr("ulimit -v"), HasSubstr("--device.threads=1")));
  EXPECT_EQ(said_below(RLIMIT_AS, mapped_bytes() + (std::uint64_t{4} << 30U), [] { require_threads(4); }), "");
}

TEST(Threads, ThoseThatWereTriedAreGoneAfterwards) {
  const auto tasks = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto before = tasks();
  for (int i = 0; i < 200; ++i) {
    require_threads(8);
    ASSERT_EQ(tasks(), before) << i;
  }
}

TEST(AddressSpace, TooLittleIsRefusedBeforeAnythingIsComputed) {
  EXPECT_THAT(said_below(RLIMIT_AS, mapped_bytes() + library_address_space(1) / 2, [] { guard_address_space(1); }),
              AllOf(HasSubstr("is limited to"), HasSubstr("(ulimit -v)"), HasSubstr("raise the limit")));
}

TEST(AddressSpace, TensorsLeaveToLibrariesWhatTheyNeed) {
  const std::uint64_t most = mapped_bytes() + library_address_space(1) + (std::uint64_t{100} << 20U);
  const std::string said = said_below(RLIMIT_AS, most, [] {
    guard_address_space(1);
    std::vector<at::Tensor> kept;
    try {
      while (true) kept.push_back(at::empty({std::int64_t{4} << 20}, at::kByte));
    } catch (const std::exception& error) {
      const std::uint64_t left = address_space_left().value_or(0);
      // The parent's threads have left heaps of 64 MB each, which a child may grow but can't return. A program that checks its
      // limits at its start has no such heaps.
      if (left + (std::uint64_t{64} << 20U) < library_address_space(1))
        throw std::runtime_error("only " + std::to_string(left) + " bytes are left");
      if (kept.size() < 10) throw std::runtime_error("refused after " + std::to_string(kept.size()));
      throw;
    }
  });
  EXPECT_THAT(said, AllOf(HasSubstr("a tensor of 4.2 MB does not fit"), HasSubstr("(ulimit -v)")));
}

TEST(Memory, AProcessThatStandsBackGoesFirstAndRefusesWhatIsNotFree) {
  const std::string said = said_below(RLIMIT_CORE, 0, [] {
    const bool may_be_set = static_cast<bool>(std::ofstream("/proc/self/oom_score_adj") << "1" << std::flush);
    stand_back_for_memory();
    std::string score;
    std::ifstream("/proc/self/oom_score_adj") >> score;
    if (may_be_set && score != "1000") throw std::runtime_error("oom_score_adj is " + score);
    (void)at::empty({std::int64_t{1} << 42}, at::kByte);
  });
  EXPECT_THAT(said, HasSubstr("does not fit: the process holds"));
}

}  // namespace
}  // namespace millrace::device
