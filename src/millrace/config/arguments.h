// The options a command has itself, taken out of its words; what is left are config flags (config::Layers) or mistakes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"

namespace millrace::config {

// Names are given without dashes; one letter means -x, more mean --xyz. Hyphen and underscore are alike. Mistakes are collected
// in problems(), so that they can be reported together with those of the config.
class Arguments {
 public:
  explicit Arguments(std::span<const std::string> words) : words_(words.begin(), words.end()) {}

  // Takes every --name=value and --name value, in order.
  std::vector<std::string> values(std::initializer_list<std::string_view> names);
  std::optional<std::string> value(std::string_view name);  // the last one counts
  std::int64_t integer(std::string_view name, std::int64_t otherwise, std::int64_t minimum);
  bool flag(std::string_view name);  // --name, --no-name, --name=true|false, --name true|false
  // Takes the first word that is no option; nullopt when there is none.
  std::optional<std::string> positional();
  std::vector<std::string> rest() { return std::move(words_); }  // what nobody took

  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  [[nodiscard]] std::vector<Problem>& problems() noexcept { return problems_; }
  void add(std::string word) { words_.push_back(std::move(word)); }
  void remove(std::size_t index) { words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(index)); }
  // Throws for the problems and for every word nobody took, with the nearest option of `command`.
  void finish(std::string_view command);

 private:
  std::vector<std::string> words_;
  std::vector<Problem> problems_;
  std::vector<std::string> known_;
};

[[nodiscard]] std::string with_underscores(std::string_view word);
// "did you mean "x"? " or "" when nothing is near.
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
[[nodiscard]] bool looks_like_option(std::string_view word);

}  // namespace millrace::config
