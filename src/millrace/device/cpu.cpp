#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/attention_guard.h"
#include "millrace/device/convolution_guard.h"
#include "millrace/device/device.h"
#include "millrace/device/preflight.h"
#include "millrace/system/instructions.h"
#include "millrace/system/machine.h"

namespace millrace::device {

namespace {

Cpu read_cpu() {
  const Machine machine;
  const std::vector<int> cpus = allowed_cpus();
  const std::set<std::string> flags = machine.cpu_flags();
  Cpu cpu;
  cpu.name = machine.cpu_name();
  cpu.logical_cores = static_cast<int>(cpus.size());
  cpu.physical_cores = machine.physical_cores(cpus);
  if (const auto quota = machine.cpu_quota()) {
    const int whole = std::max(1, static_cast<int>(std::ceil(std::min(*quota, 1e6))));
    cpu.logical_cores = std::min(cpu.logical_cores, whole);
    cpu.physical_cores = std::min(cpu.physical_cores, whole);
  }
  const InstructionSet set = instructions();
  cpu.avx2 = flags.contains("avx2") && set >= InstructionSet::avx2;
  cpu.avx512 = flags.contains("avx512f") && set >= InstructionSet::avx512;
  cpu.avx512_bf16 = flags.contains("avx512_bf16") && set >= InstructionSet::avx512_bf16;
  cpu.amx_bf16 = flags.contains("amx_bf16") && set >= InstructionSet::amx;
  cpu.level2_bytes = std::max(0L, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  cpu.capability = at::get_cpu_capability();
  return cpu;
}

}  // namespace

const Cpu& cpu_info() {
  static const Cpu cpu = read_cpu();
  return cpu;
}

void set_threads(int intra_op) {
  (void)guard_convolutions();
  (void)guard_attention();
  const int threads = std::max(1, intra_op);
  if (threads > most_threads()) {
    throw ConfigError({with_commas(threads) + " threads are far more than the " + std::to_string(cpu_info().logical_cores) +
                           (cpu_info().logical_cores == 1 ? " CPU" : " CPUs") +
                           " that this process may use: the threads would wait for each other",
                       "device.threads", "leave it at auto, or choose " + std::to_string(most_threads()) + " at most"});
  }
  static int made = 0;  // number of threads that each pool already has; up to this number no thread is created
  if (threads <= made) return at::set_num_threads(threads);
  guard_address_space(threads);
  // Checks first whether the threads can be created. If they can't, ATen's second pool, which is as large as OpenMP's, would
  // hang, and OpenMP would end the process.
  constexpr int kOthers = 3;  // room for a reader, the writer and the sampler, whose own code handles a failed start
  require_threads(2 * (threads - 1) + kOthers);
  at::set_num_threads(threads);
  made = threads;
  at::parallel_for(0, threads, 1, [](std::int64_t, std::int64_t) {});
}

}  // namespace millrace::device
