// What of a machine stands in the way of training at its full speed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/device/device.h"
#include "millrace/device/grants.h"

namespace millrace::cli {

struct FolderRoom {
  std::string what;  // "cache folder"
  std::filesystem::path path;
  std::uint64_t free_bytes = 0;
  bool is_writable = true;
};

// All that findings are made of.
struct MachineView {
  device::Cpu cpu;
  device::Grants grants;
  std::string cuda;  // why no GPU is used; "" = one is
  std::string asked_instructions;
  std::vector<FolderRoom> folders;
};

struct Finding {
  bool stops_runs = false;  // else runs are slower or smaller than they could be
  std::string id, what, next;
};
// In the order of their weight.
[[nodiscard]] std::vector<Finding> findings_of(const MachineView& machine);

}  // namespace millrace::cli
