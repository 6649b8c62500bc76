// Measured values by name, in the order in which the names were added.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::metrics {

// Holds at most a few hundred names, because lookup is linear. Iterates over pairs of name and value in the order of addition.
class Means {
 public:
  // The version of a metric's definition, which rises when the definition is corrected. Values of two versions are not compared
  // without a note.
  struct MetricVersion {
    int number = 1;
    bool moved = false;  // the previous version gives another value for the same data
    friend bool operator==(const MetricVersion&, const MetricVersion&) = default;
  };

  // States which value of a metric is the best; unknown for a metric without a direction, such as a count or a size.
  enum class BestIs : std::uint8_t { unknown, lowest, highest };

  using value_type = std::pair<std::string, double>;
  using const_iterator = std::vector<value_type>::const_iterator;
  using Patterns = std::set<std::string, std::less<>>;
  using Directions = std::map<std::string, BestIs, std::less<>>;  // the directions by pattern, see Means::best_is_of

  Means() = default;
  Means(std::initializer_list<value_type> values) : values_(values) {}

  double& operator[](std::string_view name);                                // adds a missing name at the end, as NaN
  [[nodiscard]] const_iterator find(std::string_view name) const noexcept;  // end() if it is missing
  [[nodiscard]] bool contains(std::string_view name) const noexcept { return find(name) != end(); }
  [[nodiscard]] double at(std::string_view name) const;  // throws RecipeError, which lists the existing names
  [[nodiscard]] const_iterator begin() const noexcept { return values_.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return values_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }

  // Patterns of names that are left out of the console's lines; logs and event files have all names. See Board::quiet for the
  // patterns.
  void set_quiet(Patterns patterns) { quiet_ = std::move(patterns); }
  void add_quiet(std::string pattern) { quiet_.insert(std::move(pattern)); }
  [[nodiscard]] Patterns quiet_with(std::string_view prefix) const;  // the patterns, each with this prefix
  [[nodiscard]] bool shown_on_console(std::string_view name) const noexcept;

  void set_version(std::string_view name, MetricVersion version) { versions_[std::string(name)] = version; }
  [[nodiscard]] MetricVersion version_of(std::string_view name) const;  // 1 if no version was set

  void set_best_is(Directions directions) { best_is_ = std::move(directions); }
  [[nodiscard]] BestIs best_is_of(std::string_view name) const;  // from the longest pattern that matches

  // Compares names, values, versions and quiet names. Directions are not compared, because they are not results.
  friend bool operator==(const Means& a, const Means& b) {
    return a.values_ == b.values_ && a.quiet_ == b.quiet_ && a.versions_ == b.versions_;
  }

 private:
  std::vector<value_type> values_;
  Patterns quiet_;
  Directions best_is_;
  std::map<std::string, MetricVersion, std::less<>> versions_;
};

}  // namespace millrace::metrics
