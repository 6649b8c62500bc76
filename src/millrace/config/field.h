// How a config struct describes itself: its consteval fields() list drives reading, flags, help and docs.
//
//   struct OptimConfig {
//     double learning_rate = 3e-4;
//     static consteval auto fields() {
//       using C = OptimConfig;
//       return std::tuple{config::field<&C::learning_rate>("Learning rate after warm-up.").above(0)};
//     }
//   };
//
// Members may be: bool, integers, floating point, std::string, std::filesystem::path, enums (enumerator names are the legal
// words), std::optional, std::vector, std::map<std::string, T>, std::variant, Auto<T>, and structs that have fields() themselves.
// A member missing from fields(), a C array or a base class is a compile error (checked where the schema is made).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace millrace::config {

// A value, or "auto", which means that Millrace chooses the value and reports why. Default: auto.
template <class T>
class Auto {
 public:
  using value_type = T;
  constexpr Auto() = default;
  constexpr Auto(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): Auto<int> x = 3
  [[nodiscard]] constexpr bool is_auto() const noexcept { return !value_.has_value(); }
  [[nodiscard]] constexpr const T& value() const { return *value_; }  // call it only if is_auto() is false
  [[nodiscard]] constexpr T value_or(T chosen) const { return value_ ? *value_ : std::move(chosen); }
  friend constexpr bool operator==(const Auto&, const Auto&) = default;

 private:
  std::optional<T> value_;
};

// What fields() states about one member. Bounds apply to the number, each element of a vector, or the value inside optional/Auto.
template <auto Member>
struct FieldSpec {
  std::string_view help;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_open = false;  // the value must be > minimum, not >=
  bool maximum_open = false;
  std::int64_t least_size = 0;  // least number of elements in a vector
  std::int64_t greatest_size = std::numeric_limits<std::int64_t>::max();
  bool is_required = false;
  std::string_view unit_text = {};
  bool is_path = false;
  std::string_view words_beside_path = {};
  bool is_free_on_resume = false;

  consteval FieldSpec min(double value) const {
    FieldSpec s = *this;
    s.minimum = value;
    s.minimum_open = false;
    return s;
  }
  consteval FieldSpec max(double value) const {
    FieldSpec s = *this;
    s.maximum = value;
    s.maximum_open = false;
    return s;
  }
  consteval FieldSpec above(double value) const {
    FieldSpec s = *this;
    s.minimum = value;
    s.minimum_open = true;
    return s;
  }
  consteval FieldSpec below(double value) const {
    FieldSpec s = *this;
    s.maximum = value;
    s.maximum_open = true;
    return s;
  }
  consteval FieldSpec size(std::int64_t exact) const { return size(exact, exact); }
  consteval FieldSpec size(std::int64_t least, std::int64_t greatest) const {
    FieldSpec s = *this;
    s.least_size = least;
    s.greatest_size = greatest;
    return s;
  }
  consteval FieldSpec not_empty() const { return size(1, std::numeric_limits<std::int64_t>::max()); }
  consteval FieldSpec required() const {
    FieldSpec s = *this;
    s.is_required = true;
    return s;
  }
  consteval FieldSpec unit(std::string_view value) const {
    FieldSpec s = *this;
    s.unit_text = value;
    return s;
  }
  // Marks a text, or a list of texts, as the path of a file or folder to read; Layers says in which folders relative paths are
  // looked for. `words`, separated by bars, are also legal values and are not paths.
  consteval FieldSpec path(std::string_view words = {}) const {
    FieldSpec s = *this;
    s.is_path = true;
    s.words_beside_path = words;
    return s;
  }
  // Marks a member or a whole section whose value may change when a run resumes.
  consteval FieldSpec free_on_resume() const {
    FieldSpec s = *this;
    s.is_free_on_resume = true;
    return s;
  }
};

template <auto Member>
consteval FieldSpec<Member> field(std::string_view help) {
  return FieldSpec<Member>{.help = help};
}

}  // namespace millrace::config
