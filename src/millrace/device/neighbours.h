// Other programs on this process's cores.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace millrace::device {

// Measures how much of the cores other programs used. Costs some reads of /proc: for log lines, not for steps. For one thread.
class Neighbours {
 public:
  Neighbours();
  // For tests: these CPUs, and a folder that imitates "/".
  Neighbours(std::filesystem::path root, std::vector<int> cpus);
  // The fraction, 0 to 1, of the time with work for this process's threads in which they waited while another program used a
  // core, since the last call or the constructor. Threads of this process that wait for each other do not count, and neither does
  // time that a control group's quota withheld. nullopt if the kernel does not report it, or if less than a tenth of a second of
  // work was done.
  std::optional<double> take();
  // Measures the same in cores: 1 is a whole core that another program used while a thread of this process waited, with any
  // number of other cores. Resets the counts in any case: a moment with hardly any work is of no later use.
  std::optional<double> take_recent_cores();
  [[nodiscard]] std::optional<double> since_made() const;  // the fraction since the constructor

 private:
  struct Counts {                    // seconds
    double ran = 0, waited = 0;      // this process's threads: time on a core, and time ready to run without a core
    double held = 0;                 // CPU time that quotas withheld from its control groups
    double used = 0, available = 0;  // the CPUs' time: used by all programs, and available
    double passed = 0;               // elapsed time
  };
  // Differences from an earlier time.
  struct Taken {
    double of_ours = 0;    // seconds for which this process's threads waited, perhaps for other programs
    double of_others = 0;  // seconds on the CPUs
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
