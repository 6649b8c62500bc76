#include "millrace/config/arguments.h"

#include <algorithm>
#include <charconv>

#include "millrace/base/format.h"

namespace millrace::config {
namespace {

// Returns an option's name: "--data-dir=x" -> "data_dir", "-c" -> "c"; "" if the word is not an option.
std::string option_name(std::string_view word) {
  if (word.size() >= 3 && word.starts_with("--"))
    return with_underscores(word.substr(2, word.find('=') == std::string_view::npos ? word.npos : word.find('=') - 2));
  if (word.size() == 2 && word[0] == '-' && word[1] != '-') return std::string(1, word[1]);
  return "";
}

std::string dashed(std::string_view name) { return (name.size() == 1 ? "-" : "--") + std::string(name); }

}  // namespace

bool looks_like_option(std::string_view word) { return word.size() >= 2 && word[0] == '-' && word != "--"; }

std::vector<std::string> Arguments::values(std::initializer_list<std::string_view> names) {
  std::vector<std::string> found;
  for (const std::string_view name : names) known_.emplace_back(name);
  for (std::size_t i = 0; i < words_.size();) {
    const std::string name = option_name(words_[i]);
    if (std::none_of(names.begin(), names.end(), [&](std::string_view n) { return with_underscores(n) == name; })) {
      ++i;
      continue;
    }
    const auto equals = words_[i].find('=');
    if (equals != std::string::npos) {
      found.push_back(words_[i].substr(equals + 1));
      remove(i);
    } else if (i + 1 < words_.size() && !looks_like_option(words_[i + 1])) {
      found.push_back(words_[i + 1]);
      remove(i);
      remove(i);
    } else {
      problems_.push_back({dashed(name) + " needs a value", "flag " + words_[i], "write " + dashed(name) + "=VALUE"});
      remove(i);
    }
  }
  return found;
}

std::optional<std::string> Arguments::value(std::string_view name) {
  auto found = values({name});
  return found.empty() ? std::nullopt : std::optional(std::move(found.back()));
}

std::int64_t Arguments::integer(std::string_view name, std::int64_t otherwise, std::int64_t minimum) {
  const auto text = value(name);
  if (!text) return otherwise;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < minimum) {
    problems_.push_back(
        {dashed(name) + " is " + millrace::quoted(*text) + ", which is not a whole number of at least " + std::to_string(minimum),
         "flag " + dashed(name) + "=" + *text,
         "give a whole number, such as " + dashed(name) + "=" + std::to_string(std::max(otherwise, minimum))});
    return otherwise;
  }
  return number;
}

bool Arguments::flag(std::string_view name) {
  const std::string wanted = with_underscores(name);
  known_.emplace_back(name);
  bool on = false;
  for (std::size_t i = 0; i < words_.size();) {
    const std::string found = option_name(words_[i]);
    const bool negative = found == "no_" + wanted;
    if (found != wanted && !negative) {
      ++i;
      continue;
    }
    const auto equals = words_[i].find('=');
    std::string text = equals == std::string::npos ? "true" : words_[i].substr(equals + 1);
    if (equals == std::string::npos && i + 1 < words_.size() && (words_[i + 1] == "true" || words_[i + 1] == "false")) {
      text = words_[i + 1];
      remove(i + 1);
    }
    if (text != "true" && text != "false") {
      problems_.push_back({dashed(name) + " is " + millrace::quoted(text) + ", which is neither true nor false",
                           "flag " + words_[i], "write " + dashed(name) + " or --no-" + std::string(name)});
    }
    on = (text == "true") != negative;
    remove(i);
  }
  return on;
}

std::optional<std::string> Arguments::positional() {
  const auto word = std::find_if_not(words_.begin(), words_.end(), looks_like_option);
  if (word == words_.end()) return std::nullopt;
  std::string found = *word;
  words_.erase(word);
  return found;
}

void Arguments::finish(std::string_view command) {
  for (const auto& word : words_) {
    Problem problem;
    problem.where = "millrace " + std::string(command);
    if (looks_like_option(word)) {
      problem.what = "there is no option " + word.substr(0, word.find('='));
      const std::string near = nearest(option_name(word), known_.data(), known_.data() + known_.size());
      problem.next = (near.empty() ? "" : "did you mean " + dashed(near) + "? ") + "millrace " + std::string(command) +
                     " --help lists the options";
    } else {
      problem.what = "unexpected word " + millrace::quoted(word);
      problem.next = "millrace " + std::string(command) + " --help shows the usage";
    }
    problems_.push_back(std::move(problem));
  }
  words_.clear();
  if (problems_.size() == 1) throw UsageError(problems_.front());
  if (!problems_.empty()) throw ConfigError(problems_);
}

std::string with_underscores(std::string_view word) {
  std::string text(word);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates.data(), candidates.data() + candidates.size());
  return near.empty() ? "" : "did you mean " + millrace::quoted(near) + "? ";
}

}  // namespace millrace::config
