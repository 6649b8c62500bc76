#include "millrace/metrics/means.h"

#include <algorithm>
#include <limits>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::metrics {
namespace {

bool fits(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

}  // namespace

Means::const_iterator Means::find(std::string_view name) const noexcept {
  return std::find_if(values_.begin(), values_.end(), [&](const value_type& value) { return value.first == name; });
}

double& Means::operator[](std::string_view name) {
  const auto found = find(name);
  if (found != end()) return values_[static_cast<std::size_t>(found - begin())].second;
  return values_.emplace_back(std::string(name), std::numeric_limits<double>::quiet_NaN()).second;
}

double Means::at(std::string_view name) const {
  const auto found = find(name);
  if (found != end()) return found->second;
  throw RecipeError({"there is no metric " + quoted(name), "metrics of a board",
                     empty() ? "no metric was added" : "there are " + joined(values_, ", ", &value_type::first)});
}

Means::Patterns Means::quiet_with(std::string_view prefix) const {
  Patterns patterns;
  for (const std::string& pattern : quiet_) patterns.insert(std::string(prefix) + pattern);
  return patterns;
}

Means::MetricVersion Means::version_of(std::string_view name) const {
  const auto found = versions_.find(name);
  return found == versions_.end() ? Means::MetricVersion{} : found->second;
}

bool Means::shown_on_console(std::string_view name) const noexcept {
  return std::none_of(quiet_.begin(), quiet_.end(), [&](std::string_view pattern) { return fits(pattern, name); });
}

Means::BestIs Means::best_is_of(std::string_view name) const {
  BestIs found = BestIs::unknown;
  std::size_t longest = 0;
  for (const auto& [pattern, best_is] : best_is_) {
    if (!fits(pattern, name) || pattern.size() < longest) continue;
    longest = pattern.size();
    found = best_is;
  }
  return found;
}

}  // namespace millrace::metrics
