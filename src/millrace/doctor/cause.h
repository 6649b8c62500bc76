// Finds the cause of a run's end from its log and the system's counters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// Identifies a process's control group and the boot, and counts how often memory ran out so far. Values that the system does not
// report are left out.
struct SystemMark {
  std::string group;                          // folder of the memory controller's control group
  std::string boot;                           // changes at each boot
  std::optional<std::int64_t> group_kills;    // processes that the kernel killed when out of memory: in this control group
  std::optional<std::int64_t> machine_kills;  // the same on the whole machine
  std::optional<std::uint64_t> group_limit;   // bytes
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static SystemMark of(const Json& json);  // accepts any JSON
};
// The state of this process, or of a process in `group`. `root`: a folder that imitates "/", for tests.
[[nodiscard]] SystemMark system_mark(const std::string& group = "", const std::filesystem::path& root = "/");

struct Cause {
  // "going_on", "finished", "stopped" (by a signal), "failed" (an error that explains itself), "crashed", "out_of_memory" (killed
  // by the kernel, or an error says so), "hung", "killed" (by a signal, or by its launcher), "rebooted", "unknown"
  std::string id;
  std::string text;       // one line
  bool is_death = false;  // true if the run neither continues nor ended normally
  std::int64_t step = 0;  // the last step that was logged
};

// `lines`: the lines of one process, from its "start" line on. `alive`: a process holds the run's lock. `now`: system_mark() of
// the process's group.
[[nodiscard]] Cause cause_of(const std::vector<Json>& lines, bool alive, const SystemMark& now);

// The process's control group; "" if its log does not name it.
[[nodiscard]] std::string group_of(const std::vector<Json>& lines);
// The lines of each process of a run, oldest first, from the text of its log.jsonl, which may hold anything.
[[nodiscard]] std::vector<std::vector<Json>> processes_in(const std::string& log);

}  // namespace millrace::doctor
