// What a run died of, by what its log and the system say afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/json.h"

namespace millrace::doctor {

// What tells processes and boots apart, and how often memory ran out so far. What the system does not say is left out.
struct SystemMark {
  std::string group;                          // folder of the memory controller's control group
  std::string boot;                           // changes with each start of the system
  std::optional<std::int64_t> group_kills;    // processes that the kernel killed for want of memory: of this control group
  std::optional<std::int64_t> machine_kills;  // of the whole machine
  std::optional<std::uint64_t> group_limit;   // bytes
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static SystemMark of(const Json& json);  // whatever is in it
};
// Of this process, or of another one in `group`. `root`: a folder that imitates "/", for tests.
[[nodiscard]] SystemMark system_mark(const std::string& group = "", const std::filesystem::path& root = "/");

struct Cause {
  // "going_on", "finished", "stopped" (by a signal), "failed" (an error that says itself), "crashed", "out_of_memory" (the kernel
  // killed it, or an error says so), "hung", "killed" (by a signal, or by its launcher), "rebooted", "unknown"
  std::string id;
  std::string text;       // one line
  bool is_death = false;  // neither going on nor ended as it should
  std::int64_t step = 0;  // the last that was logged
};

// `lines`: of a process of the run, from its "start" line on. `alive`: it holds the run's lock. `now`: system_mark() of its
// group.
[[nodiscard]] Cause cause_of(const std::vector<Json>& lines, bool alive, const SystemMark& now);

[[nodiscard]] std::string group_of(const std::vector<Json>& lines);  // that the process was in; "" = its log does not say
// The lines of each process of a run, oldest first, from the text of its log.jsonl: whatever stands there.
[[nodiscard]] std::vector<std::vector<Json>> processes_in(const std::string& log);

}  // namespace millrace::doctor
