// What was measured, by name, in the order in which the names came.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::metrics {

// A few hundred names at most: they are looked up one after the other. Loops see pairs of name and value in the order of
// addition.
class Means {
 public:
  using value_type = std::pair<std::string, double>;
  using const_iterator = std::vector<value_type>::const_iterator;
  using Patterns = std::set<std::string, std::less<>>;

  Means() = default;
  Means(std::initializer_list<value_type> values) : values_(values) {}

  double& operator[](std::string_view name);                                // added at the end, as NaN, where it is missing
  [[nodiscard]] const_iterator find(std::string_view name) const noexcept;  // end() where it is missing
  [[nodiscard]] bool contains(std::string_view name) const noexcept { return find(name) != end(); }
  [[nodiscard]] double at(std::string_view name) const;  // RecipeError names what there is
  [[nodiscard]] const_iterator begin() const noexcept { return values_.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return values_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }

  // Names that stay out of lines for people; logs and event files have them all. See Board::quiet for the patterns.
  void set_quiet(Patterns patterns) { quiet_ = std::move(patterns); }
  [[nodiscard]] Patterns quiet_with(std::string_view prefix) const;  // the patterns of the names with a prefix before each
  [[nodiscard]] bool shown_on_console(std::string_view name) const noexcept;

  friend bool operator==(const Means&, const Means&) = default;

 private:
  std::vector<value_type> values_;
  Patterns quiet_;
};

}  // namespace millrace::metrics
