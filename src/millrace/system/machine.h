// Linux's information about the machine, read from its pseudo-files. `root` is "/" or, in tests, a folder that imitates it.
// Missing and malformed files never throw: their values are "unknown".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace millrace {

[[nodiscard]] std::vector<int> allowed_cpus();  // logical CPUs this process may run on; never empty
// Free memory of the machine, below the limits of the control group and of `ulimit -v`. Reads system files: do not call it within
// a step.
[[nodiscard]] std::uint64_t available_memory_bytes();

class Machine {
 public:
  explicit Machine(std::filesystem::path root = "/") : root_(std::move(root)) {}

  [[nodiscard]] std::string cpu_name() const;             // "" if unknown
  [[nodiscard]] std::set<std::string> cpu_flags() const;  // as listed by the kernel: only those that programs may use
  // Distinct cores among these logical CPUs; each counts as a core if the topology is unknown.
  [[nodiscard]] int physical_cores(std::span<const int> logical) const;
  // CPUs' worth of time that the process's control groups allow: the lowest limit of all levels.
  [[nodiscard]] std::optional<double> cpu_quota() const;
  // Time for which these quotas have withheld CPUs from the groups so far, over all CPUs; 0 if the kernel does not report it.
  [[nodiscard]] double throttled_seconds() const;
  // Free memory of the machine, or the rest below the tightest control group's limit if that is less.
  [[nodiscard]] std::optional<std::uint64_t> available_memory() const;
  // The lowest limit of the process's control groups.
  [[nodiscard]] std::optional<std::uint64_t> memory_limit() const;
  [[nodiscard]] std::optional<std::uint64_t> thread_limit() const;  // processes and threads
  [[nodiscard]] bool has_nvidia_gpu() const;

 private:
  // Folders of this process's control group and those above it, for a controller ("cpu", "memory"), innermost first.
  [[nodiscard]] std::vector<std::filesystem::path> groups(const std::string& controller) const;
  [[nodiscard]] std::string read(const std::filesystem::path& path) const;  // "" if it can't be read
  [[nodiscard]] std::optional<std::uint64_t> number_after(const std::filesystem::path& path, const std::string& key) const;
  std::filesystem::path root_;
};

}  // namespace millrace
