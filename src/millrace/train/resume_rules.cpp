#include "millrace/train/resume_rules.h"

#include <algorithm>
#include <array>
#include <map>

namespace millrace {
namespace {

void flatten(const Json& value, const std::string& prefix, std::map<std::string, Json>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items()) flatten(child, prefix.empty() ? key : prefix + "." + key, out);
  } else {
    out[prefix] = value;
  }
}

}  // namespace

bool may_change_on_resume(const std::string& path, std::span<const std::string> recipe_keys) {
  static const std::array<std::string_view, 18> keys = {"train.max_steps",
                                                        "train.epochs",
                                                        "train.resume",
                                                        "train.validate_at_start",
                                                        "train.early_stop_patience",
                                                        "data.workers",
                                                        "data.prefetch",
                                                        "data.pin_memory",
                                                        "data.persistent_workers",
                                                        "data.dir",
                                                        "data.cache",
                                                        "data.cache_bytes",
                                                        "data.max_buffer_bytes",
                                                        "train.validate_every",
                                                        "train.validate_batches",
                                                        "device.name",
                                                        "train.early_stop_delta",
                                                        "data.accept_changed"};
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

}  // namespace millrace
