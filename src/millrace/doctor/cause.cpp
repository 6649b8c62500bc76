#include "millrace/doctor/cause.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string_view>

#include "millrace/base/foreign_json.h"
#include "millrace/base/format.h"
#include "millrace/system/process.h"

namespace millrace::doctor {
namespace {

std::string first_word_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

// Finds a line such as "<key> 12" in the file and returns its number.
std::optional<std::int64_t> count_of(const std::filesystem::path& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The folder of the control group that limits this process's memory: in cgroup version 2 the process's only group, in version 1
// its group for the memory controller. In a container, it is the root of the mounted cgroup file system.
std::filesystem::path memory_group(const std::filesystem::path& root) {
  std::filesystem::path mounted = root / "sys/fs/cgroup";
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(std::min(second + 2, line.size()));
    std::error_code ignored;
    if (controllers.empty()) {
      const auto group = mounted / path;
      return std::filesystem::exists(group / "memory.events", ignored) ? group : mounted;
    }
    if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      const auto group = mounted / "memory" / path;
      return std::filesystem::exists(group / "memory.oom_control", ignored) ? group : mounted / "memory";
    }
  }
  return mounted;
}

const Json* last_of(const std::vector<Json>& lines, std::string_view kind) {
  const auto it = std::find_if(lines.rbegin(), lines.rend(), [&](const Json& line) { return text_at(line, {"kind"}) == kind; });
  return it == lines.rend() ? nullptr : &*it;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string memory_text(const std::vector<Json>& lines) {
  const Json* machine = last_of(lines, "machine");
  if (machine == nullptr) return "";
  const auto held = number_at(*machine, {"rss_bytes"});
  const auto free = number_at(*machine, {"available_bytes"});
  if (!held || !free) return "";
  return "; when last checked, the process held " + human_bytes(*held) + " and " + human_bytes(*free) + " were free";
}

// The launcher's log line about the rank that ended the run; "" if there is no such line.
std::string launcher_text(const std::vector<Json>& lines) {
  const Json* rank = last_of(lines, "rank");
  return rank == nullptr ? "" : first_line(text_at(*rank, {"text"}));
}

bool has_any(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

// the beginning of the line that the watchdog logs when it ends a run after a signal
constexpr std::string_view kStopped = "stopped by ";

// The watchdog's line about a standstill that lasted until the end of the log; only lines about the end of the run may follow
// it. Null if there is no such line.
const Json* standstill_of(const std::vector<Json>& lines) {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const std::string kind = text_at(*line, {"kind"}), text = text_at(*line, {"text"});
    if (kind == "signal" || kind == "rank" || (kind == "hang" && text.starts_with(kStopped))) continue;
    return kind == "hang" && !text.starts_with("the run moves again") ? &*line : nullptr;
  }
  return nullptr;
}

// A text such as "the run has not moved for 60 s (step 41, backward of generator)".
std::string standstill_text(const Json& hang) {
  constexpr std::string_view kWhere = "\n  where    ";
  const std::string text = text_at(hang, {"text"});
  const std::size_t where = text.find(kWhere);
  return first_line(text) + (where == std::string::npos ? "" : " (" + first_line(text.substr(where + kWhere.size())) + ")");
}

// The kind of error as part of a sentence: "of bad data", "for lack of memory". Sets `id` if memory ran out.
std::string reason_of(const std::string& error, std::string& id) {
  if (has_any(error, {"No space left on device", "Disk quota exceeded"}) ||
      (has_any(error, {"can't save"}) && has_any(error, {"are free"})))
    return "of a full disk";
  if (has_any(error, {"File too large"})) return "of the limit on the size of a file (ulimit -f)";
  if (error.starts_with("DataError")) return "of bad data";
  if (error.starts_with("TrainingDiverged")) return "of divergence";
  if (has_any(first_line(error), {"out of memory", "std::bad_alloc", "can't allocate memory", "Cannot allocate memory",
                                  "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED"})) {
    id = "out_of_memory";
    return "for lack of memory";
  }
  return "of an error";
}

// The cause of an end that the process itself logged, in the line `end`. `is_script`: the run is a training script. Such a run
// saves its own state, so the text does not say that Millrace saved it.
Cause ended(const Json& end, const std::string& launcher, bool is_script, Cause cause) {
  const std::string reason = text_at(end, {"exit_reason"});
  cause.step = std::max(cause.step, count_at(end, {"step"}));
  const std::string at = " at step " + with_commas(cause.step);
  if (reason == "signal") {
    const std::string from = text_at(end, {"sender"});
    cause.id = "stopped";
    cause.text = "stopped by " + (text_at(end, {"signal"}).empty() ? "a signal" : text_at(end, {"signal"})) +
                 (from.empty() ? "" : " from " + from) + at + (is_script ? "" : ", and saved: the same command resumes it");
    return cause;
  }
  if (reason != "error") {
    cause.id = "finished";
    cause.text = "finished" + at + (is_script ? "" : " (" + (reason.empty() ? "no reason given" : reason) + ")");
    return cause;
  }
  const std::string error = text_at(end, {"error"});
  cause.id = "failed";
  cause.is_death = true;
  const std::string why = reason_of(error, cause.id);
  cause.text = "died" + at + " " + why + ": " + (error.empty() ? "the error's text is not in the log" : first_line(error));
  // A DistributedError of this rank only says that another rank is gone. The launcher's text says more.
  if (!launcher.empty() && error.starts_with("DistributedError")) cause.text += "; the launcher says: " + launcher;
  return cause;
}

// Sets `cause` and returns true if the last lines of the log show the cause. `died`: a text such as "died after step 12".
bool cause_from_log(const std::vector<Json>& lines, const std::string& died, Cause& cause) {
  if (const Json* crash = last_of(lines, "crash")) {
    cause.id = "crashed";
    cause.text = died + " of " + text_at(*crash, {"text"});
    return true;
  }
  if (const std::string launcher = launcher_text(lines); has_any(launcher, {" has not moved for ", " is frozen "})) {
    cause.id = "hung";
    cause.text = died + ": the launcher ended all ranks, because " + launcher;
    return true;
  }
  const Json* still = standstill_of(lines);
  const std::string detail = still == nullptr ? "" : ": " + standstill_text(*still);
  if (const Json* signal = last_of(lines, "signal")) {
    const std::string text = text_at(*signal, {"text"});
    cause.id = still == nullptr ? "killed" : "hung";
    cause.text = died + (still == nullptr ? " of " + text : ": it had made no more progress, and " + text + " ended it" + detail);
    return true;
  }
  const Json* hang = last_of(lines, "hang");
  const std::string last = hang == nullptr ? "" : text_at(*hang, {"text"});
  if (!last.starts_with(kStopped)) return false;
  cause.id = "hung";
  cause.text = died + ": it had made no more progress, and was " + last.substr(0, last.find(" in ")) + detail;
  return true;
}

// The name of the machine on which the process ran; "" if it was this machine, or if the log does not name the machine. The boot
// and the counters of another machine say nothing about this machine.
std::string other_machine(const Json* start) {
  const std::string host = start == nullptr ? "" : text_at(*start, {"system", "host"});
  return host == host_name() ? "" : host;
}

// True if both moments have a count of the processes that the kernel killed for lack of memory, so that the two can be compared.
bool counts_kills(const SystemMark& then, const SystemMark& now) {
  return (then.machine_kills && now.machine_kills) || (then.group_kills && now.group_kills && then.group_limit);
}

// Sets `cause` and returns true if the system's counters show the cause. `then`: the counters when the process began.
bool cause_from_system(const std::vector<Json>& lines, const SystemMark& then, const SystemMark& now, const std::string& died,
                       Cause& cause) {
  if (!then.boot.empty() && !now.boot.empty() && then.boot != now.boot) {
    cause.id = "rebooted";
    cause.text = died + ": the machine has restarted since, after a power cut or a reboot";
    return true;
  }
  const auto rose = [](std::optional<std::int64_t> before, std::optional<std::int64_t> after) {
    return before && after && *after > *before;
  };
  if (rose(then.group_kills, now.group_kills) && then.group_limit) {
    cause.text = died + ": the kernel killed it, because its control group had used up its " +
                 human_bytes(static_cast<double>(*then.group_limit)) + " of memory";
  } else if (rose(then.machine_kills, now.machine_kills)) {
    const std::int64_t killed = *now.machine_kills - *then.machine_kills;
    cause.text = died + ", probably killed by the kernel for lack of memory: the kernel has killed " + with_commas(killed) +
                 (killed == 1 ? " process" : " processes") + " on this machine since the run began";
  } else {
    return false;
  }
  cause.id = "out_of_memory";
  if (const std::string launcher = launcher_text(lines); !launcher.empty()) cause.text += "; the launcher says: " + launcher;
  cause.text += memory_text(lines);
  return true;
}

}  // namespace

Json SystemMark::to_json() const {
  Json json = {{"boot", boot}, {"group", group}, {"host", host_name()}};
  if (group_kills) json["group_kills"] = *group_kills;
  if (machine_kills) json["machine_kills"] = *machine_kills;
  if (group_limit) json["group_limit"] = *group_limit;
  return json;
}

SystemMark SystemMark::of(const Json& json) {
  SystemMark mark;
  mark.boot = text_at(json, {"boot"});
  mark.group = text_at(json, {"group"});
  if (number_at(json, {"group_kills"})) mark.group_kills = count_at(json, {"group_kills"});
  if (number_at(json, {"machine_kills"})) mark.machine_kills = count_at(json, {"machine_kills"});
  if (const auto limit = number_at(json, {"group_limit"}); limit && *limit > 0)
    mark.group_limit = static_cast<std::uint64_t>(*limit);
  return mark;
}

SystemMark system_mark(const std::string& of_group, const std::filesystem::path& root) {
  // The folder's path comes from a log and may be anything, so only folders of control groups are read.
  const bool known = of_group.starts_with((root / "sys/fs/cgroup").string()) && of_group.find("..") == std::string::npos;
  const std::filesystem::path group = known ? std::filesystem::path(of_group) : memory_group(root);
  SystemMark mark;
  mark.group = group.string();
  mark.boot = first_word_of(root / "proc/sys/kernel/random/boot_id");
  mark.group_kills = count_of(group / "memory.events", "oom_kill");
  if (!mark.group_kills) mark.group_kills = count_of(group / "memory.oom_control", "oom_kill");
  mark.machine_kills = count_of(root / "proc/vmstat", "oom_kill");
  for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
    std::istringstream text(first_word_of(group / file));
    constexpr std::uint64_t kNone = 1ULL << 60U;  // in cgroup version 1, a limit of at least this means that there is no limit
    if (std::uint64_t limit = 0; text >> limit && limit < kNone) mark.group_limit = limit;
  }
  return mark;
}

Cause cause_of(const std::vector<Json>& lines, bool alive, const SystemMark& now) {
  Cause cause;
  if (const Json* step = last_of(lines, "step")) cause.step = count_at(*step, {"step"});
  const Json* still = standstill_of(lines);
  if (alive) {
    cause.id = "going_on";
    cause.text = "still running, step " + with_commas(cause.step);
    if (still != nullptr) cause.text += "; it has made no progress since: " + standstill_text(*still);
    return cause;
  }
  const std::string launcher = launcher_text(lines);
  const Json* start = last_of(lines, "start");
  const bool is_script = start != nullptr && !text_at(*start, {"script"}).empty();
  if (const Json* end = last_of(lines, "end")) return ended(*end, launcher, is_script, std::move(cause));
  cause.is_death = true;
  const std::string at = cause.step != 0    ? " after step " + with_commas(cause.step)
                         : start == nullptr ? " before its first step"
                                            : " before its first log line";
  const std::string died = "died" + at;
  const SystemMark then = start == nullptr || !start->contains("system") ? SystemMark{} : SystemMark::of((*start)["system"]);
  if (cause_from_log(lines, died, cause)) return cause;
  // A new container has another host name, but the same boot and counters as its machine.
  const std::string elsewhere = then.boot == now.boot ? "" : other_machine(start);
  if (elsewhere.empty() && cause_from_system(lines, then, now, died, cause)) return cause;
  if (!launcher.empty()) {
    cause.id = "killed";
    cause.text = died + ": the launcher ended all ranks, because " + launcher + memory_text(lines);
    return cause;
  }
  if (still != nullptr) {
    cause.id = "hung";
    cause.text = died + ": it had made no more progress, and somebody killed it: " + standstill_text(*still);
    return cause;
  }
  if (then.boot.empty()) {
    cause.id = "unknown";
    cause.text = "ended" + at + " without a message, and its log does not contain the reason";
    return cause;
  }
  if (!elsewhere.empty()) {
    cause.id = "unknown";
    cause.text = died + " without a message, on machine " + elsewhere + ": only that machine knows whether memory ran out, " +
                 "somebody killed it or the machine restarted; ask millrace doctor there" + memory_text(lines);
    return cause;
  }
  cause.id = "killed";
  cause.text = died + ": somebody killed it (SIGKILL: kill -9, or a time limit of the batch system)" +
               (counts_kills(then, now) ? "; memory had not run out" : ", or memory ran out, which this system does not count") +
               memory_text(lines);
  return cause;
}

std::string group_of(const std::vector<Json>& lines) {
  const Json* start = last_of(lines, "start");
  return start == nullptr || !start->contains("system") ? "" : text_at((*start)["system"], {"group"});
}

std::vector<std::vector<Json>> processes_in(const std::string& log) {
  std::vector<std::vector<Json>> processes;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    Json line = parse_shallow(std::string_view(log).substr(begin, end - begin));
    begin = end + 1;
    if (!line.is_object()) continue;
    if (processes.empty() || text_at(line, {"kind"}) == "start") processes.emplace_back();
    processes.back().push_back(std::move(line));
  }
  return processes;
}

}  // namespace millrace::doctor
