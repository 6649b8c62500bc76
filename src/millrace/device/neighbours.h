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
  // waited while another program had a core; 0 to 1. Threads of this process that wait for each other do not count. nullopt where
  // the kernel does not say it, or where less than a tenth of a second of work was done.
  std::optional<double> take();
  // The same, but counted anew in any case: of a moment in which next to nothing was done nobody wants to know later.
  std::optional<double> take_recent();
  [[nodiscard]] std::optional<double> since_made() const;  // the same since the constructor

 private:
  struct Counts {                    // seconds
    double ran = 0, waited = 0;      // this process's threads: on a core, and ready to run without a core
    double used = 0, available = 0;  // the CPUs: by anybody, and all that they had to give
  };
  [[nodiscard]] std::optional<Counts> now() const;
  [[nodiscard]] static std::optional<double> share(const std::optional<Counts>& before, const std::optional<Counts>& now);
  std::filesystem::path root_;
  std::vector<int> cpus_;
  std::optional<Counts> first_, last_;
};

}  // namespace millrace::device
