#include "millrace/core/state.h"

#include "millrace/base/error.h"

namespace millrace {

void merge(State& whole, std::string_view prefix, State part) {
  const std::string key(prefix);
  for (auto& [name, tensor] : part.tensors) {
    const bool is_new = whole.tensors.emplace(key + "." + name, std::move(tensor)).second;
    MR_CHECK(is_new, "two parts of the state are called \"" + key + "." + name + "\"");
  }
  MR_CHECK(!whole.json.contains(key), "two parts of the state are called \"" + key + "\"");
  whole.json[key] = std::move(part.json);
}

State split(const State& whole, std::string_view prefix) {
  State part;
  const std::string start = std::string(prefix) + ".";
  for (auto at = whole.tensors.lower_bound(start); at != whole.tensors.end() && at->first.starts_with(start); ++at) {
    part.tensors.emplace(at->first.substr(start.size()), at->second);
  }
  if (const auto found = whole.json.find(std::string(prefix)); found != whole.json.end()) part.json = *found;
  return part;
}

}  // namespace millrace
