// Finds out why a run ended, from its log and the system's counters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// Marks a moment in the life of a process: its control group, the boot of the machine, and how often memory had run out. Values
// that the system does not report are nullopt or "".
struct SystemMark {
  std::string group;                        // folder of the control group that limits the process's memory
  std::string boot;                         // a text that is different after each boot
  std::optional<std::int64_t> group_kills;  // number of processes in this group that the kernel has killed because memory ran out
  std::optional<std::int64_t> machine_kills;  // number of processes on the whole machine that the kernel has killed because
                                              // memory ran out
  std::optional<std::uint64_t> group_limit;   // bytes of memory that the group may use
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static SystemMark of(const Json& json);  // reads to_json()'s result; accepts any JSON
};
// Returns the present mark of this process, or of a process in the control group `group` if that is given. `root`: a folder
// that replaces "/" in tests.
[[nodiscard]] SystemMark system_mark(const std::string& group = "", const std::filesystem::path& root = "/");

struct Cause {
  // One of: "going_on", "finished", "stopped" (by a signal), "failed" (by an error that explains itself), "crashed",
  // "out_of_memory" (killed by the kernel, or an error says so), "hung", "killed" (by a signal, or by its launcher), "rebooted",
  // "unknown".
  std::string id;
  std::string text;       // a line for people
  bool is_death = false;  // true: the run is no longer running and did not end normally
  std::int64_t step = 0;  // the last step in the log
};

// The cause of a process's end. `lines`: the log lines of that process, from its "start" line on. `alive`: true if a process
// holds the run's lock. `now`: the present system_mark() of the process's group.
[[nodiscard]] Cause cause_of(const std::vector<Json>& lines, bool alive, const SystemMark& now);

// Returns the control group of a process, from the process's log lines; "" if the lines do not name the group.
[[nodiscard]] std::string group_of(const std::vector<Json>& lines);
// The lines of each process of a run, the oldest process first. `log`: the text of its log.jsonl, which may hold anything.
[[nodiscard]] std::vector<std::vector<Json>> processes_in(const std::string& log);

}  // namespace millrace::doctor
