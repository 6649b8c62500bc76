#include "millrace/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "millrace/base/format.h"

namespace millrace {
namespace {

std::string date_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H%M%S", &local);
  return text.data();
}

void flatten(const Json& value, const std::string& prefix, std::map<std::string, Json>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items()) flatten(child, prefix.empty() ? key : prefix + "." + key, out);
  } else {
    out[prefix] = value;
  }
}

}  // namespace

std::filesystem::path choose_run_folder(const std::string& recipe, const RunNames& names) {
  if (!names.dir.empty()) return names.dir;
  const std::filesystem::path parent =
      names.parent.empty() ? std::filesystem::path("runs") / recipe : std::filesystem::path(names.parent);
  if (!names.name.empty()) return parent / names.name;
  const std::string base = date_time();
  std::filesystem::path folder = parent / base;
  for (int i = 2; std::filesystem::exists(folder); ++i) folder = parent / (base + "-" + std::to_string(i));
  return folder;
}

RunLock::RunLock(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / "lock";
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw UsageError({"can't write to the run folder " + run_folder.string(), file.string() + ": " + std::strerror(errno),
                      "choose another folder with --run"});
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw UsageError({"another process is training in " + run_folder.string(), file.string(),
                      "wait for it, stop it, or choose another folder with --run"});
  }
}

RunLock::~RunLock() {
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

void clear_run_folder(Fs& fs, const std::filesystem::path& run_folder) {
  if (!fs.exists(run_folder)) return;
  for (const std::string& name : fs.list(run_folder)) {
    const bool ours = name == "snapshots" || name == "log.jsonl" || name == "summary.json" || name == "plan.json" ||
                      name == "config.json" || name == "history.csv" || name.starts_with("events.out.tfevents.");
    if (ours) fs.remove_all(run_folder / name);
  }
}

bool may_change_on_resume(const std::string& path, std::span<const std::string> recipe_keys) {
  static const std::array<std::string_view, 17> keys = {
      "train.max_steps", "train.epochs",          "train.resume",          "train.validate_at_start", "train.early_stop_patience",
      "data.workers",    "data.prefetch",         "data.pin_memory",       "data.persistent_workers", "data.dir",
      "data.cache",      "data.cache_bytes",      "data.max_buffer_bytes", "train.validate_every",    "train.validate_batches",
      "device.name",     "train.early_stop_delta"};
  if (path.starts_with("log.") || path.starts_with("memory.") || path.starts_with("snapshot.") || path.starts_with("run."))
    return true;
  const auto covers = [&](const std::string& key) { return key.ends_with('.') ? path.starts_with(key) : path == key; };
  return std::find(keys.begin(), keys.end(), path) != keys.end() || std::any_of(recipe_keys.begin(), recipe_keys.end(), covers);
}

std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now, std::span<const std::string> recipe_keys) {
  std::map<std::string, Json> before;
  std::map<std::string, Json> after;
  flatten(saved, "", before);
  flatten(now.values, "", after);
  std::vector<Problem> problems;
  for (const auto& [path, value] : after) {
    const auto it = before.find(path);
    if (it == before.end() || it->second == value || may_change_on_resume(path, recipe_keys)) continue;
    const auto origin = now.origins.find(path);
    problems.push_back({path + " is " + value.dump() + ", the run in this folder was started with " + it->second.dump(),
                        origin == now.origins.end() ? "" : origin->second,
                        "put the old value back, choose another folder with --run, or start over here with --fresh"});
  }
  return problems;
}

void write_config(Fs& fs, const std::filesystem::path& run_folder, const config::Resolved& config) {
  const Json all = {{"values", config.values}, {"origins", config.origins}};
  write_atomically(fs, run_folder / "config.json", all.dump(2) + "\n");
}

config::Resolved read_config(Fs& fs, const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / "config.json";
  try {
    const Json all = Json::parse(fs.read_file(file));
    config::Resolved config;
    config.values = all.at("values");
    if (all.contains("origins")) config.origins = all["origins"].get<std::map<std::string, std::string>>();
    return config;
  } catch (const std::exception& error) {
    throw SnapshotError({"can't read the config of the run in " + run_folder.string(), file.string() + ": " + error.what(),
                         "give the folder of a run that millrace train wrote"});
  }
}

}  // namespace millrace
