// The machine beside a run, once a second: what the accounts of the loop can't see.
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

// Of a stretch of time. What the system does not tell is left out.
struct MachineReading {
  double seconds = 0;
  double cpu_own = 0, cpu_others = 0, cpu_stolen = 0;      // cores: of this process, of other programs, of other machines
  std::uint64_t rss_bytes = 0;                             // at most
  std::optional<std::uint64_t> available_bytes;            // at least
  std::uint64_t major_faults = 0;                          // pages that had to be read from a disk
  std::optional<std::uint64_t> read_bytes, written_bytes;  // by this process, on disks
  std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // part of the time in which some program waited for it
  std::optional<double> mhz;                      // of the core that the process's busiest thread was on: the mean of the looks
  std::map<std::string, double> threads;          // cores, of this process's threads of each name; none below a hundredth
  std::optional<std::uint64_t> page_cache_bytes;  // of the machine: files that are held in memory
  std::optional<std::uint64_t> group_bytes;       // what the process's control group holds, with its files
  // Of the run's GPU: its mean use, its least clock, the most memory and heat; what held it back in at least half of the looks.
  std::optional<GpuReading> gpu;
  [[nodiscard]] Json to_json() const;
};

// A thread of this process, by what the system says of it at one moment.
struct ThreadCounts {
  std::string name;
  double seconds = 0;  // on a core, so far
  int core = 0;        // that it was on last
};

// A thread of its own that reads /proc. Its own cost is measured: above kMostCost of the time it looks less often.
class Sampler {
 public:
  static constexpr double kMostCost = 0.005;

  // `gpu`: of a run on one, which CUDA calls `gpu_index`; null = none. A folder that imitates "/" as root: for tests.
  explicit Sampler(std::filesystem::path root = "/", std::unique_ptr<Nvml> gpu = nullptr, int gpu_index = 0);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  void start();  // looks every second until destruction; nothing where no thread is to be had
  void look();   // once
  [[nodiscard]] std::optional<MachineReading> take();   // since the last call; nullopt: nothing was seen. Any thread
  [[nodiscard]] std::optional<GpuReading> gpu() const;  // at the last look; nullopt: nobody tells. Any thread
  [[nodiscard]] double cost() const;                    // part of the time that looking takes

 private:
  struct Counts {
    double at = 0;                                // steady seconds
    double cpu_own = 0, cpu_all = 0, stolen = 0;  // seconds
    std::uint64_t major_faults = 0;
    std::optional<std::uint64_t> read_bytes, written_bytes;
    std::optional<double> pressure_cpu, pressure_io, pressure_memory;  // seconds
    std::map<int, ThreadCounts> threads;                               // by number
  };
  // Of the GPU since the last take().
  struct GpuLooks {
    int count = 0;
    double used = 0;
    std::map<std::string, int> held_back;
    GpuReading extremes;
  };
  [[nodiscard]] Counts now() const;
  void add(const GpuReading& reading);
  [[nodiscard]] std::optional<GpuReading> take_gpu();

  std::filesystem::path root_;
  std::unique_ptr<Nvml> gpu_;
  int gpu_index_ = 0;
  GpuLooks gpu_looks_;
  std::optional<GpuReading> gpu_now_;  // at the last look
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  double interval_ = 1;
  double began_ = 0, spent_ = 0;
  Counts last_, newest_;
  bool looked_ = false;
  MachineReading levels_;  // rss, available, page cache, group since the last take()
  double clocks_ = 0;      // MHz of its looks, summed
  int clock_looks_ = 0;
  std::thread thread_;
};

}  // namespace millrace::doctor
