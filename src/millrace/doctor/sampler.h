// Samples the state of the machine once a second during a run, because the loop's accounts of time can't show it.
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

// Reads /proc in a separate thread. It measures its own cost: if that exceeds the share kMostCost of the time, it samples less
// often.
class Sampler {
 public:
  // Samples of a stretch of time. Values that the system does not report are left out.
  struct MachineReading {
    double seconds = 0;
    double cpu_own = 0, cpu_others = 0, cpu_stolen = 0;      // number of cores that were used by this process, by other programs,
                                                             // and by other virtual machines
    std::uint64_t rss_bytes = 0;                             // largest memory of this process
    std::optional<std::uint64_t> available_bytes;            // smallest free memory of the machine
    std::uint64_t major_faults = 0;                          // pages that had to be read from a disk
    std::optional<std::uint64_t> read_bytes, written_bytes;  // bytes that this process read from and wrote to disks
    std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // share of the time in which some program waited for this
                                                                       // resource
    std::optional<double> mhz;                      // mean clock of the core on which this process's busiest thread runs
    std::map<std::string, double> threads;          // thread name -> number of cores that it used, if 0.01 or more
    std::optional<std::uint64_t> page_cache_bytes;  // memory of the machine that holds cached files
    std::optional<std::uint64_t> group_bytes;       // memory of this process's control group, including its cached files
    // The run's GPU: mean use, lowest clock, highest memory use and temperature, and the reasons that kept its clock low in at
    // least half of the samples.
    std::optional<Nvml::Reading> gpu;
    [[nodiscard]] Json to_json() const;
  };

  // A thread of this process at one moment, as the system reports it.
  struct ThreadCounts {
    std::string name;
    double seconds = 0;  // CPU time so far, in seconds
    int core = 0;        // the core on which it last ran
  };

  static constexpr double kMostCost = 0.005;

  // `gpu`: reads the run's GPU, which has the number `gpu_index` in CUDA; null for a run without a GPU. `root`: a folder that
  // replaces "/" in tests.
  explicit Sampler(std::filesystem::path root = "/", std::unique_ptr<Nvml> gpu = nullptr, int gpu_index = 0);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Starts a thread that samples every second until destruction; does nothing if the system can't create the thread.
  void start();
  void look();                                         // takes a sample
  [[nodiscard]] std::optional<MachineReading> take();  // the samples since the last call; nullopt if no sample was taken. Any
                                                       // thread may call it
  // the GPU at the last sample; nullopt if unknown. Any thread may call it
  [[nodiscard]] std::optional<Nvml::Reading> gpu() const;
  [[nodiscard]] double cost() const;  // share of the time that sampling took

 private:
  struct Counts {
    double at = 0;                                // time of the sample, in seconds of the steady clock
    double cpu_own = 0, cpu_all = 0, stolen = 0;  // CPU time in seconds
    std::uint64_t major_faults = 0;
    std::optional<std::uint64_t> read_bytes, written_bytes;
    std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // seconds of waiting
    std::map<int, ThreadCounts> threads;                               // counts by thread id
  };
  // Sums over the samples of the GPU since the last take().
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
  std::optional<Nvml::Reading> gpu_now_;  // the GPU at the last sample
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  double interval_ = 1;
  double began_ = 0, spent_ = 0;
  Counts last_, newest_;
  bool looked_ = false;
  MachineReading levels_;  // since the last take(): extremes of rss, available memory and control group, and the latest page
                           // cache
  double clocks_ = 0;      // sum of the sampled clocks, in MHz
  int clock_looks_ = 0;
  std::thread thread_;
};

}  // namespace millrace::doctor
