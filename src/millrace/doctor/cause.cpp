#include "millrace/doctor/cause.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "millrace/base/format.h"
#include "millrace/base/shallow_json.h"

namespace millrace::doctor {
namespace {

std::string first_word_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

// A line "<key> 12".
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

// Of version 2, else of version 1's memory controller. In a container the group is the root of what is mounted.
std::filesystem::path memory_group(const std::filesystem::path& root) {
  const std::filesystem::path mounted = root / "sys/fs/cgroup";
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

std::string text_at(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

std::optional<double> number_at(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_number()) return std::nullopt;
  const auto value = json[key].get<double>();
  return std::isfinite(value) && std::abs(value) < 1e18 ? std::optional(value) : std::nullopt;
}

const Json* last_of(const std::vector<Json>& lines, std::string_view kind) {
  const auto it = std::find_if(lines.rbegin(), lines.rend(), [&](const Json& line) { return text_at(line, "kind") == kind; });
  return it == lines.rend() ? nullptr : &*it;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string memory_text(const std::vector<Json>& lines) {
  const Json* machine = last_of(lines, "machine");
  if (machine == nullptr) return "";
  const auto held = number_at(*machine, "rss_bytes");
  const auto free = number_at(*machine, "available_bytes");
  if (!held || !free) return "";
  return "; the last time it was looked at, the process held " + human_bytes(*held) + " and " + human_bytes(*free) + " were free";
}

Cause ended(const Json& end, Cause cause) {
  const std::string reason = text_at(end, "exit_reason");
  cause.step = std::max(cause.step, static_cast<std::int64_t>(number_at(end, "step").value_or(0)));
  const std::string at = " at step " + with_commas(cause.step);
  if (reason == "signal") {
    const std::string from = text_at(end, "sender");
    cause.id = "stopped";
    cause.text = "stopped by " + (text_at(end, "signal").empty() ? "a signal" : text_at(end, "signal")) +
                 (from.empty() ? "" : " from " + from) + at + ", and saved: the same command goes on";
    return cause;
  }
  if (reason != "error") {
    cause.id = "finished";
    cause.text = "finished" + at + " (" + (reason.empty() ? "no reason given" : reason) + ")";
    return cause;
  }
  const std::string error = text_at(end, "error");
  cause.id = "failed";
  cause.is_death = true;
  const bool full = error.find("No space left on device") != std::string::npos ||
                    (error.find("can't save") != std::string::npos && error.find("are free") != std::string::npos);
  const bool bad_data = error.starts_with("DataError");
  const bool diverged = error.starts_with("TrainingDiverged");
  cause.text = "died" + at +
               (full       ? " of a full disk: "
                : bad_data ? " of bad data: "
                : diverged ? " of divergence: "
                           : " of an error: ") +
               (error.empty() ? "its text is not in the log" : first_line(error));
  return cause;
}

}  // namespace

Json SystemMark::to_json() const {
  Json json = {{"boot", boot}, {"group", group}};
  if (group_kills) json["group_kills"] = *group_kills;
  if (machine_kills) json["machine_kills"] = *machine_kills;
  if (group_limit) json["group_limit"] = *group_limit;
  return json;
}

SystemMark SystemMark::of(const Json& json) {
  SystemMark mark;
  mark.boot = text_at(json, "boot");
  mark.group = text_at(json, "group");
  if (const auto kills = number_at(json, "group_kills")) mark.group_kills = static_cast<std::int64_t>(*kills);
  if (const auto kills = number_at(json, "machine_kills")) mark.machine_kills = static_cast<std::int64_t>(*kills);
  if (const auto limit = number_at(json, "group_limit"); limit && *limit > 0)
    mark.group_limit = static_cast<std::uint64_t>(*limit);
  return mark;
}

SystemMark system_mark(const std::string& of_group, const std::filesystem::path& root) {
  // What a log says is no reason to read any folder.
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
    constexpr std::uint64_t kNone = 1ULL << 60U;  // version 1 says so
    if (std::uint64_t limit = 0; text >> limit && limit < kNone) mark.group_limit = limit;
  }
  return mark;
}

Cause cause_of(const std::vector<Json>& lines, bool alive, const SystemMark& now) {
  Cause cause;
  if (const Json* step = last_of(lines, "step")) cause.step = static_cast<std::int64_t>(number_at(*step, "step").value_or(0));
  const std::string at = cause.step == 0 ? " before its first log line" : " after step " + with_commas(cause.step);
  if (alive) {
    const Json* hang = last_of(lines, "hang");
    cause.id = "going_on";
    cause.text = "going on, step " + with_commas(cause.step);
    if (hang != nullptr && &*hang == &lines.back())
      cause.text += "; it has not moved since: " + first_line(text_at(*hang, "text"));
    return cause;
  }
  if (const Json* end = last_of(lines, "end")) return ended(*end, std::move(cause));
  cause.is_death = true;
  if (const Json* crash = last_of(lines, "crash")) {
    cause.id = "crashed";
    cause.text = "died" + at + " of " + text_at(*crash, "text");
    return cause;
  }
  const Json* start = last_of(lines, "start");
  const SystemMark then = start == nullptr || !start->contains("system") ? SystemMark{} : SystemMark::of((*start)["system"]);
  if (!then.boot.empty() && !now.boot.empty() && then.boot != now.boot) {
    cause.id = "rebooted";
    cause.text = "died" + at + ": the machine was started anew since, by a power cut or a reboot";
    return cause;
  }
  const auto rose = [](std::optional<std::int64_t> before, std::optional<std::int64_t> after) {
    return before && after && *after > *before;
  };
  if (rose(then.group_kills, now.group_kills) && then.group_limit) {
    cause.id = "out_of_memory";
    cause.text = "died" + at + ": the kernel killed it, since its control group had used up its " +
                 human_bytes(static_cast<double>(*then.group_limit)) + " of memory" + memory_text(lines);
    return cause;
  }
  if (rose(then.machine_kills, now.machine_kills)) {
    cause.id = "out_of_memory";
    cause.text = "died" + at + ", probably killed by the kernel for want of memory: since it began the kernel has done that " +
                 with_commas(*now.machine_kills - *then.machine_kills) + " times on this machine" + memory_text(lines);
    return cause;
  }
  const Json* hang = last_of(lines, "hang");
  if (hang != nullptr && hang == &lines.back() && !text_at(*hang, "text").starts_with("the run moves again")) {
    cause.id = "hung";
    cause.text = "died" + at + ": it had not moved any more, and somebody killed it: " + first_line(text_at(*hang, "text"));
    return cause;
  }
  if (then.boot.empty()) {
    cause.id = "unknown";
    cause.text = "ended" + at + " without a word, and its log does not say what would tell the reason";
    return cause;
  }
  cause.id = "killed";
  cause.text = "died" + at + ": somebody killed it (SIGKILL: kill -9, a time limit of the batch system), no memory had run out" +
               memory_text(lines);
  return cause;
}

std::string group_of(const std::vector<Json>& lines) {
  const Json* start = last_of(lines, "start");
  return start == nullptr || !start->contains("system") ? "" : text_at((*start)["system"], "group");
}

std::vector<std::vector<Json>> processes_in(const std::string& log) {
  std::vector<std::vector<Json>> processes;
  for (std::size_t begin = 0; begin < log.size();) {
    const std::size_t end = std::min(log.find('\n', begin), log.size());
    Json line = parse_shallow(std::string_view(log).substr(begin, end - begin));
    begin = end + 1;
    if (!line.is_object()) continue;
    if (processes.empty() || text_at(line, "kind") == "start") processes.emplace_back();
    processes.back().push_back(std::move(line));
  }
  return processes;
}

}  // namespace millrace::doctor
