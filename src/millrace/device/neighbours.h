// Measures how much other programs use this process's cores.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace millrace::device {

// Counts the use of the cores by other programs. Each count reads several files of /proc, so call it for log lines, not in each
// step. Use it from one thread.
class Neighbours {
 public:
  Neighbours();
  // For tests: uses these CPUs, and reads /proc and /sys below `root` instead of "/".
  Neighbours(std::filesystem::path root, std::vector<int> cpus);
  // Returns the share, 0 to 1, of this process's working time in which a thread was ready to run but waited while another
  // program used a core. The share covers the time since the last call, or since the constructor. The time of threads that wait
  // for other threads of this process does not count. Time that a control group's quota withheld does not count either. Returns
  // nullopt if the kernel does not report the times, or if the process worked for less than a tenth of a second.
  std::optional<double> take();
  // Like take(), but returns a number of cores: 1 means that another program used a whole core while a thread of this process
  // waited. The number of other cores does not matter. Each call covers only the time since the last call, even if the last call
  // returned nullopt, because old counts with hardly any work are useless.
  std::optional<double> take_recent_cores();
  [[nodiscard]] std::optional<double> since_made() const;  // like take(), for the time since construction

 private:
  struct Counts {                    // all members are seconds
    double ran = 0, waited = 0;      // time of this process's threads on a core, and ready to run without a core
    double held = 0;                 // CPU time that quotas withheld from the control groups of this process
    double used = 0, available = 0;  // CPU time that all programs used, and CPU time available
    double passed = 0;               // elapsed time
  };
  // Differences from the counts of an earlier time.
  struct Taken {
    double of_ours = 0;    // seconds for which this process's threads waited, perhaps for other programs
    double of_others = 0;  // seconds that other programs used on the CPUs
    double wanted = 0;     // seconds in which this process's threads had work
    double available = 0, passed = 0;
    [[nodiscard]] double share() const noexcept;
    [[nodiscard]] double cores() const noexcept;
  };
  [[nodiscard]] std::optional<Counts> now() const;
  [[nodiscard]] static std::optional<Taken> between(const std::optional<Counts>& before, const std::optional<Counts>& now);
  std::filesystem::path root_;
  std::vector<int> cpus_;
  std::optional<Counts> first_, last_;
};

}  // namespace millrace::device
