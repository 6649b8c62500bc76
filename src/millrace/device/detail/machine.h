// What Linux says about the machine, read from its pseudo-files. `root` is "/" or, in tests, a folder that imitates one.
// Missing and malformed files never throw: they read as "unknown".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace millrace::device::detail {

[[nodiscard]] std::vector<int> allowed_cpus();  // logical CPUs this process may run on; never empty

class Machine {
 public:
  explicit Machine(std::filesystem::path root = "/") : root_(std::move(root)) {}

  [[nodiscard]] std::string cpu_name() const;             // "" when unknown
  [[nodiscard]] std::set<std::string> cpu_flags() const;  // as the kernel lists them: only what it lets programs use
  // Different cores among these logical CPUs; each counts as a core where the topology is unknown.
  [[nodiscard]] int physical_cores(std::span<const int> logical) const;
  // CPUs' worth of time the process's control groups allow, the tightest of all levels.
  [[nodiscard]] std::optional<double> cpu_quota() const;
  // For how long these quotas have kept CPUs from the groups so far, over all CPUs; 0 where the kernel does not say it.
  [[nodiscard]] double throttled_seconds() const;
  // Free memory of the machine, or what is left below the tightest control group's limit if that is less.
  [[nodiscard]] std::optional<std::uint64_t> available_memory() const;
  // The tightest of the process's control groups.
  [[nodiscard]] std::optional<std::uint64_t> memory_limit() const;
  [[nodiscard]] std::optional<std::uint64_t> thread_limit() const;  // processes and threads
  [[nodiscard]] bool has_nvidia_gpu() const;

 private:
  // Folders of this process's control group and those above it, for a controller ("cpu", "memory"), innermost first.
  [[nodiscard]] std::vector<std::filesystem::path> groups(const std::string& controller) const;
  [[nodiscard]] std::string read(const std::filesystem::path& path) const;  // "" when it can't be
  [[nodiscard]] std::optional<std::uint64_t> number_after(const std::filesystem::path& path, const std::string& key) const;
  std::filesystem::path root_;
};

}  // namespace millrace::device::detail
