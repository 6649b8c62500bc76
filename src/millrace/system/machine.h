// Linux's information about the machine, read from its pseudo-files. `root` is "/" or, in tests, a folder that replaces it. A
// missing or malformed file never throws; its value is then unknown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace millrace {

[[nodiscard]] std::vector<int> allowed_cpus();  // returns the logical CPUs that this process may run on; never empty
// Returns the memory that this process may still take: the free memory of the machine, within the limits of the control group
// and of `ulimit -v`. Reads system files, so do not call it within a step.
[[nodiscard]] std::uint64_t available_memory_bytes();

class Machine {
 public:
  explicit Machine(std::filesystem::path root = "/") : root_(std::move(root)) {}

  [[nodiscard]] std::string cpu_name() const;             // returns "" if the name is unknown
  [[nodiscard]] std::set<std::string> cpu_flags() const;  // features that programs may use, as the kernel lists them
  // Returns the number of distinct cores among these logical CPUs. If the topology is unknown, each logical CPU counts as one
  // core.
  [[nodiscard]] int physical_cores(std::span<const int> logical) const;
  // Returns the CPU time that the process's control groups allow, in CPUs: the lowest limit of all levels.
  [[nodiscard]] std::optional<double> cpu_quota() const;
  // Returns the seconds for which the control groups' CPU quotas have withheld CPUs so far, added up over all CPUs; 0 if the
  // kernel does not report them.
  [[nodiscard]] double throttled_seconds() const;
  // Returns the free memory of the machine or, if that is less, the bytes that the tightest control group still allows.
  [[nodiscard]] std::optional<std::uint64_t> available_memory() const;
  // Returns the lowest memory limit of the process's control groups.
  [[nodiscard]] std::optional<std::uint64_t> memory_limit() const;
  [[nodiscard]] std::optional<std::uint64_t> thread_limit() const;  // returns the limit on the number of processes and threads
  [[nodiscard]] bool has_nvidia_gpu() const;

 private:
  // Returns the folders of this process's control group and its parents, innermost first, for a controller ("cpu", "memory").
  [[nodiscard]] std::vector<std::filesystem::path> groups(const std::string& controller) const;
  [[nodiscard]] std::string read(const std::filesystem::path& path) const;  // returns "" if the file can't be read
  [[nodiscard]] std::optional<std::uint64_t> number_after(const std::filesystem::path& path, const std::string& key) const;
  std::filesystem::path root_;
};

}  // namespace millrace
