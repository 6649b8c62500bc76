// Takes a command's own options out of the words of a command line. The words left over are config flags (config::Layers) or
// mistakes.
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

// The words of a command, out of which the functions below take options. `names` are given without dashes; a one-letter name
// means -x, a longer one --xyz. Hyphen and underscore are alike. Mistakes are collected in problems(), so that they can be
// reported together with those of the config.
class Arguments {
 public:
  explicit Arguments(std::span<const std::string> words) : words_(words.begin(), words.end()) {}

  // Takes every --name=value and --name value, in order.
  std::vector<std::string> values(std::initializer_list<std::string_view> names);
  std::optional<std::string> value(std::string_view name);  // returns the value that was given last
  std::int64_t integer(std::string_view name, std::int64_t otherwise, std::int64_t minimum);
  bool flag(std::string_view name);  // accepts --name, --no-name, --name=true|false, --name true|false
  // Takes the first word that is not an option; nullopt if all words are options.
  std::optional<std::string> positional();
  std::vector<std::string> rest() { return std::move(words_); }  // returns the words that were not taken so far

  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  [[nodiscard]] std::vector<Problem>& problems() noexcept { return problems_; }
  void add(std::string word) { words_.push_back(std::move(word)); }
  void remove(std::size_t index) { words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(index)); }
  // Throws if there are problems or words left; for each word left, suggests the nearest option of `command`.
  void finish(std::string_view command);

 private:
  std::vector<std::string> words_;
  std::vector<Problem> problems_;
  std::vector<std::string> known_;
};

[[nodiscard]] std::string with_underscores(std::string_view word);
// Returns "did you mean "x"? "; "" if no candidate is near.
[[nodiscard]] std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);
[[nodiscard]] bool looks_like_option(std::string_view word);

}  // namespace millrace::config
