// Measures how much other programs use this process's cores.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace millrace::device {

// Counts the use of the cores by other programs. A count reads some files of /proc: call it for log lines, not for steps. For one
// thread.
class Neighbours {
 public:
  Neighbours();
  // For tests: uses these CPUs, and a folder that imitates "/".
  Neighbours(std::filesystem::path root, std::vector<int> cpus);
  // The share, 0 to 1, of this process's working time in which a thread was ready to run but waited while another program used a
  // core; since the last call or the constructor. Threads that wait for other threads of this process do not count, and neither
  // does time that a control group's quota withheld. nullopt if the kernel does not report it, or if less than a tenth of a
  // second of work was done.
  std::optional<double> take();
  // The same in cores: 1 means that another program used a whole core while a thread of this process waited, whatever the number
  // of other cores. Always resets the counts, because a moment with hardly any work is of no later use.
  std::optional<double> take_recent_cores();
  [[nodiscard]] std::optional<double> since_made() const;  // the share since the constructor

 private:
  struct Counts {                    // seconds
    double ran = 0, waited = 0;      // time of this process's threads on a core, and ready to run without a core
    double held = 0;                 // CPU time that quotas withheld from its control groups
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
