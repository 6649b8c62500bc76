// Samples the machine once a second during a run, to see what the loop's accounts can't show.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "millrace/base/json.h"
#include "millrace/doctor/nvml.h"

namespace millrace::doctor {

// A separate thread that reads /proc. Its own cost is measured: above the share kMostCost it samples less often.
class Sampler {
 public:
  // A reading over a stretch of time. Values that the system does not report are left out.
  struct MachineReading {
    double seconds = 0;
    double cpu_own = 0, cpu_others = 0, cpu_stolen = 0;      // cores used by this process, by other programs, by other machines
    std::uint64_t rss_bytes = 0;                             // the most memory that this process held
    std::optional<std::uint64_t> available_bytes;            // the least free memory of the machine
    std::uint64_t major_faults = 0;                          // pages read from a disk
    std::optional<std::uint64_t> read_bytes, written_bytes;  // disk traffic of this process
    std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // share of the time in which some program waited
    std::optional<double> mhz;                                         // mean clock of the core of the process's busiest thread
    std::map<std::string, double> threads;          // cores used by this process's threads, by name, if 0.01 or more
    std::optional<std::uint64_t> page_cache_bytes;  // files cached in the machine's memory
    std::optional<std::uint64_t> group_bytes;       // memory of the process's control group, including its files
    // The run's GPU: mean use, lowest clock, highest memory use and temperature; reasons that held its clock back in at least
    // half of the samples.
    std::optional<Nvml::Reading> gpu;
    [[nodiscard]] Json to_json() const;
  };

  // A thread of this process, as the system reports it at one moment.
  struct ThreadCounts {
    std::string name;
    double seconds = 0;  // seconds on a core so far
    int core = 0;        // core that it last ran on
  };

  static constexpr double kMostCost = 0.005;

  // `gpu`: the NVML handle of the run's GPU, which CUDA calls `gpu_index`; null for a run without a GPU. `root`: a folder that
  // imitates "/", for tests.
  explicit Sampler(std::filesystem::path root = "/", std::unique_ptr<Nvml> gpu = nullptr, int gpu_index = 0);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void start();  // samples every second until destruction; does nothing if no thread can be made
  void look();   // samples once
  [[nodiscard]] std::optional<MachineReading> take();      // since the last call; nullopt if nothing was sampled. Any thread
  [[nodiscard]] std::optional<Nvml::Reading> gpu() const;  // at the last sample; nullopt if not available. Any thread
  [[nodiscard]] double cost() const;                       // share of the time spent sampling

 private:
  struct Counts {
    double at = 0;                                // steady seconds
    double cpu_own = 0, cpu_all = 0, stolen = 0;  // seconds
    std::uint64_t major_faults = 0;
    std::optional<std::uint64_t> read_bytes, written_bytes;
    std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // seconds
    std::map<int, ThreadCounts> threads;                               // by thread id
  };
  // Samples of the GPU since the last take().
  struct GpuLooks {
    int count = 0;
    double used = 0;
    std::map<std::string, int> held_back;
    Nvml::Reading extremes;
  };
  [[nodiscard]] Counts now() const;
  void add(const Nvml::Reading& reading);
  [[nodiscard]] std::optional<Nvml::Reading> take_gpu();

  std::filesystem::path root_;
  std::unique_ptr<Nvml> gpu_;
  int gpu_index_ = 0;
  GpuLooks gpu_looks_;
  std::optional<Nvml::Reading> gpu_now_;  // the GPU's state at the last sample
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  double interval_ = 1;
  double began_ = 0, spent_ = 0;
  Counts last_, newest_;
  bool looked_ = false;
  MachineReading levels_;  // rss, available, page cache, group since the last take()
  double clocks_ = 0;      // sum of sampled clocks, MHz
  int clock_looks_ = 0;
  std::thread thread_;
};

}  // namespace millrace::doctor
