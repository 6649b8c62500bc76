#include "millrace/cli/machine/machine_findings.h"

#include <algorithm>

#include "millrace/base/format.h"

namespace millrace::cli {
namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr double kSlowDisk = 50e6;        // bytes per second
constexpr double kBusyCores = 0.2;        // share of the cores that other programs use
constexpr double kThrottled = 0.6;        // share of a core's maximum clock
constexpr std::uint64_t kFewFiles = 256;  // a run may need more, because readers and libraries keep several files open
constexpr std::uint64_t kLittleMemory = 2 * kGigabyte, kLittleDisk = 5 * kGigabyte;

constexpr std::uint64_t kLittleShared = std::uint64_t{128} << 20U;  // bytes; the default of a container is 64 MB
constexpr double kGpuTaken = 0.2;                                   // share of a GPU's time or memory that is in use before a run
constexpr double kGpuThrottled = 0.9;                               // share of a GPU's maximum clock

std::string cpus(int count) { return std::to_string(count) + (count == 1 ? " CPU" : " CPUs"); }

void about_folders(const MachineView& machine, std::vector<Finding>& found) {
  for (const MachineView::FolderRoom& folder : machine.folders) {
    if (!folder.is_writable) {
      found.push_back({true, folder.what, "folder_read_only",
                       "the " + folder.what + " can't be written to: " + folder.path.string(),
                       "start in a folder that you may write to, or set XDG_CACHE_HOME for the cache"});
    } else if (folder.free_bytes < kLittleDisk) {
      found.push_back({false, folder.what, "disk_low",
                       human_bytes(static_cast<double>(folder.free_bytes)) + " are free in the " + folder.what,
                       "snapshots and decoded data need room: free some, or choose another disk"});
    } else if (folder.write_rate && *folder.write_rate < kSlowDisk) {
      found.push_back({false, folder.what, "disk_slow",
                       "the disk of the " + folder.what + " writes " + human_bytes(*folder.write_rate) + " a second",
                       "training waits for snapshots: choose another disk for runs (--run), or save less often"});
    } else if (folder.read_rate && *folder.read_rate < kSlowDisk) {
      found.push_back({false, folder.what, "disk_slow",
                       "the disk of the " + folder.what + " reads " + human_bytes(*folder.read_rate) + " a second",
                       "keep data on another disk; what fits into memory is read once (data.cache)"});
    }
  }
}

void about_cores(const MachineView& machine, std::vector<Finding>& found) {
  const device::ProcessResources& given = machine.resources;
  if (given.cpu_quota && *given.cpu_quota < given.allowed_cpus) {
    found.push_back(
        {false, "cores", "cpu_quota",
         "the control group limits CPU time to that of " + significant(*given.cpu_quota, 3) + " of " + cpus(given.allowed_cpus),
         "ask for one whole CPU per thread"});
  }
  if (given.allowed_cpus < given.machine_cpus) {
    found.push_back(
        {false, "cores", "cpu_affinity",
         "this process may use " + cpus(given.allowed_cpus) + " of the machine's " + std::to_string(given.machine_cpus),
         "the batch system or taskset sets this limit; ask it for more"});
  }
  if (!machine.asked_instructions.empty()) {
    found.push_back({false, "instructions", "cpu_instructions",
                     machine.asked_instructions + " leaves instructions of the CPU unused", "unset MILLRACE_CPU"});
  } else if (!machine.cpu.avx2) {
    found.push_back({false, "instructions", "cpu_instructions", "the CPU has no AVX2: all kernels take their portable paths",
                     "a CPU of the last ten years is several times as fast"});
  }
}

void about_memory(const MachineView& machine, std::vector<Finding>& found) {
  const device::ProcessResources& given = machine.resources;
  if (given.available_memory < kLittleMemory) {
    found.push_back({false, "memory", "memory_low",
                     human_bytes(static_cast<double>(given.available_memory)) + " of memory are free",
                     "end other programs; millrace estimate RECIPE says how much memory a run takes"});
  }
  if (given.address_space) {
    found.push_back({false, "memory", "address_space",
                     "the address space is limited to " + human_bytes(static_cast<double>(*given.address_space)) + " (ulimit -v)",
                     "remove the limit (ulimit -v unlimited): libraries reserve far more than they use"});
  }
}

void about_neighbours(const MachineView& machine, std::vector<Finding>& found) {
  if (machine.busy_cores > kBusyCores * std::max(machine.cpu.physical_cores, 1)) {
    found.push_back({false, "others", "neighbours",
                     "other programs use " + significant(machine.busy_cores, 2) + " cores" +
                         (machine.busiest.empty() ? "" : ", most of it " + machine.busiest),
                     "wait for them, end them, or give the run its own cores (taskset, the batch system)"});
  }
  if (machine.mhz && machine.most_mhz && *machine.mhz < kThrottled * *machine.most_mhz) {
    found.push_back({false, "clock", "clock_low",
                     "a busy core runs at " + significant(*machine.mhz, 3) + " of " + significant(*machine.most_mhz, 3) + " MHz",
                     "check temperature, power limits and the governor (cpupower frequency-info)"});
  }
  if (machine.open_files && *machine.open_files < kFewFiles) {
    found.push_back({false, "open files", "open_files", "this process may open " + std::to_string(*machine.open_files) + " files",
                     "raise the limit (ulimit -n 1024): readers keep the files of a data set open"});
  }
}

void about_gpus(const MachineView& machine, std::vector<Finding>& found) {
  if (machine.resources.has_nvidia_gpu && !machine.cuda.empty()) {
    found.push_back({false, "GPU", "gpu_unused", "the machine has an NVIDIA GPU that is not used: " + machine.cuda,
                     "runs use the CPU; a GPU needs its driver, and libmillrace_cuda.so next to the program"});
  }
  for (std::size_t i = 0; i < machine.gpu.gpus.size(); ++i) {
    const doctor::Nvml::Reading& gpu = machine.gpu.gpus[i];
    const std::string row = "GPU " + std::to_string(i);
    const double memory = gpu.memory_used && gpu.memory_total.value_or(0) > 0
                              ? static_cast<double>(*gpu.memory_used) / static_cast<double>(*gpu.memory_total)
                              : 0;
    if (gpu.utilisation.value_or(0) > kGpuTaken || memory > kGpuTaken) {
      found.push_back({false, row, "gpu_taken",
                       "other programs use " + row + ": " + percent(gpu.utilisation.value_or(0)) + " of its time, " +
                           percent(memory) + " of its memory",
                       "nvidia-smi lists them; choose another GPU with CUDA_VISIBLE_DEVICES, or wait"});
    }
    if (!gpu.held_back.empty() && gpu.mhz && gpu.most_mhz && *gpu.mhz < kGpuThrottled * *gpu.most_mhz) {
      found.push_back({false, row, "gpu_held_back",
                       row + " runs at " + significant(*gpu.mhz, 4) + " of " + significant(*gpu.most_mhz, 4) +
                           " MHz: " + joined(gpu.held_back, ", "),
                       "look at cooling and at the power limit (nvidia-smi -q -d PERFORMANCE,POWER)"});
    }
  }
}

void about_ranks(const MachineView& machine, std::vector<Finding>& found) {
  if (machine.shared_memory && *machine.shared_memory < kLittleShared) {
    found.push_back({false, "shared memory", "shared_memory_low",
                     human_bytes(static_cast<double>(*machine.shared_memory)) + " are free in /dev/shm",
                     "ranks with GPUs exchange data through it: give it more memory (docker run --shm-size=1g)"});
  }
  if (!machine.ranks_failure.empty()) {
    found.push_back({false, "ranks", "ranks_unmet", "two processes of this machine could not meet: " + machine.ranks_failure,
                     "a single process can train; check the firewall on the loopback, and GLOO_SOCKET_IFNAME"});
  }
  if (machine.taken_port > 0) {
    found.push_back({false, "ports", "port_taken", "port " + std::to_string(machine.taken_port) + " is taken",
                     "give launchers another port: --at HOST:PORT, torchrun --master-port"});
  }
}

}  // namespace

std::vector<Finding> findings_of(const MachineView& machine) {
  std::vector<Finding> found;
  about_folders(machine, found);
  about_gpus(machine, found);
  about_cores(machine, found);
  about_memory(machine, found);
  about_neighbours(machine, found);
  about_ranks(machine, found);
  std::ranges::stable_sort(found, {}, [](const Finding& finding) { return !finding.stops_runs; });
  return found;
}

}  // namespace millrace::cli
