#include "millrace/train/run_folder/resume_rules.h"

#include <algorithm>

namespace millrace {
namespace {

const Json* value_at(const Json& values, const std::string& path) {
  const auto place = config::pointer_to(path);
  return values.contains(place) ? &values.at(place) : nullptr;
}

bool is_same(const config::Leaf& leaf, const Json& saved, const Json& now, const std::filesystem::path& folder) {
  if (saved == now || !leaf.is_path) return saved == now;
  if (saved.is_string() && now.is_string()) return leads_to(saved.get<std::string>(), now.get<std::string>(), folder);
  if (!saved.is_array() || !now.is_array()) return false;
  return std::equal(saved.begin(), saved.end(), now.begin(), now.end(),
                    [&](const Json& a, const Json& b) { return is_same(leaf, a, b, folder); });
}

}  // namespace

bool leads_to(const std::string& saved, const std::string& now, const std::filesystem::path& folder) {
  if (saved == now) return true;
  if (saved.empty() || now.empty()) return false;
  std::error_code code;
  return std::filesystem::equivalent(saved, now, code) || std::filesystem::equivalent(folder / saved, now, code);
}

std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now, const config::Schema& schema,
                                       const std::filesystem::path& folder) {
  std::vector<Problem> problems;
  for (const config::Leaf& leaf : schema.leaves) {
    if (leaf.free_on_resume) continue;
    const Json* before = value_at(saved, leaf.path);
    const Json* after = value_at(now.values, leaf.path);
    if (before == nullptr || after == nullptr || is_same(leaf, *before, *after, folder)) continue;
    const auto origin = now.origins.find(leaf.path);
    problems.push_back({leaf.path + " is " + after->dump() + ", but the run in this folder was started with " + before->dump(),
                        origin == now.origins.end() ? "" : origin->second,
                        "leave it out or put the old value back, choose another folder with --run, or start over here with "
                        "--fresh"});
  }
  return problems;
}

}  // namespace millrace
