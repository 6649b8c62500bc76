// Finds weights whose names have the prefixes that Python wrappers add.
#include <algorithm>
#include <array>
#include <set>

#include "millrace/base/format.h"
#include "millrace/nn/weights.h"
#include "millrace/train/assembly/weights.h"

namespace millrace {
namespace {

using Wanted = std::map<std::string, std::vector<std::int64_t>>;

constexpr std::array<std::string_view, 5> kInFront = {"_orig_mod.", "module.", "state_dict.", "model_state_dict.", "model."};

bool has_shape(const at::Tensor& tensor, const std::vector<std::int64_t>& shape) {
  return std::ranges::equal(tensor.sizes(), shape);
}

}  // namespace

std::string pass_over_wrappers(Tensors& all, const Wanted& wanted) {
  const auto is_there = [&all](const auto& item) { return all.contains(item.first); };
  if (wanted.empty() || std::ranges::all_of(wanted, is_there)) return "";
  std::multimap<std::string, std::string> by_plain;
  for (const auto& [name, tensor] : all) by_plain.emplace(nn::plain_name(name), name);
  Tensors taken;
  std::set<std::string> used, prefixes;
  for (const auto& [name, shape] : wanted) {
    std::vector<std::string> found;
    const auto [first, last] = by_plain.equal_range(nn::plain_name(name));
    for (auto it = first; it != last; ++it)
      if (has_shape(all.at(it->second), shape)) found.push_back(it->second);
    if (found.size() != 1 || !used.insert(found[0]).second) return "";
    taken.emplace(name, all.at(found[0]));
    prefixes.insert(found[0].ends_with(name) ? found[0].substr(0, found[0].size() - name.size()) : found[0] + " for " + name);
  }
  prefixes.erase("");
  std::string notice = "these parts of the file's weight names are ignored (wrappers such as torch.compile add them): ";
  constexpr std::size_t kShown = 3;
  std::size_t shown = 0;
  for (const std::string& prefix : prefixes) {
    if (shown++ < kShown) notice += (shown > 1 ? ", " : "") + quoted(prefix);
  }
  if (prefixes.size() > kShown) notice += " and " + std::to_string(prefixes.size() - kShown) + " more";
  if (const std::size_t others = all.size() - taken.size(); others > 0)
    notice += "; " + std::to_string(others) + (others == 1 ? " tensor" : " tensors") + " of the file " +
              (others == 1 ? "is" : "are") + " ignored, because the model does not have " + (others == 1 ? "it" : "them");
  all = std::move(taken);
  return notice;
}

std::string take_common_wrappers(Tensors& all) {
  std::string gone;
  const auto begins_all = [&all](std::string_view word) {
    return !all.empty() && std::ranges::all_of(all, [&](const auto& item) { return item.first.starts_with(word); });
  };
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view word : kInFront) {
      if (!begins_all(word)) continue;
      Tensors rest;
      for (const auto& [name, tensor] : all) rest.emplace(name.substr(word.size()), tensor);
      all = std::move(rest);
      gone += word;
      again = true;
    }
  }
  return gone;
}

std::string part_with(const Tensors& all, const Wanted& wanted) {
  if (wanted.empty()) return "";
  const std::string& first = wanted.begin()->first;
  for (const auto& [name, tensor] : all) {
    if (!name.ends_with("." + first)) continue;
    const std::string part = name.substr(0, name.size() - first.size() - 1);
    const auto lies_below = [&](const auto& item) {
      const auto found = all.find(part + "." + item.first);
      return found != all.end() && has_shape(found->second, item.second);
    };
    if (std::ranges::all_of(wanted, lies_below)) return part;
  }
  return "";
}

}  // namespace millrace
