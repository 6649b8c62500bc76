// Other programs on this process's cores.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace millrace::device {

// Tells how much of the cores others had. Costs some reads of /proc: for log lines, not for steps. One thread's.
class Neighbours {
 public:
  Neighbours();
  // Of these CPUs, and from a folder that imitates "/": for tests.
  Neighbours(std::filesystem::path root, std::vector<int> cpus);
  // Since the last call, or the constructor: of the time that this process's threads had work to do, the part for which they
  // waited while another program had a core; 0 to 1. Threads of this process that wait for each other do not count, nor what a
  // control group's quota held back. nullopt where the kernel does not say it, or where less than a tenth of a second of work was
  // done.
  std::optional<double> take();
  // The same in cores: 1 is a whole one that another program had while a thread of this process waited, however many others there
  // are. Counted anew in any case: of a moment in which next to nothing was done nobody wants to know later.
  std::optional<double> take_recent_cores();
  [[nodiscard]] std::optional<double> since_made() const;  // take() since the constructor

 private:
  struct Counts {                    // seconds
    double ran = 0, waited = 0;      // this process's threads: on a core, and ready to run without a core
    double held = 0;                 // CPUs kept from its control groups by their quotas
    double used = 0, available = 0;  // the CPUs: by anybody, and all that they had to give
    double passed = 0;               // of the clock
  };
  // Since another time.
  struct Taken {
    double of_ours = 0;    // seconds for which this process's threads waited for what others may have had
    double of_others = 0;  // seconds on the CPUs
    double wanted = 0;     // seconds that this process's threads had work to do
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
