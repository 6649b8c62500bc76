// Settings from the command line and the environment.
#include <unistd.h>

#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"
#include "millrace/config/arguments.h"
#include "millrace/config/layer.h"
#include "millrace/config/schema.h"

namespace millrace::config {
namespace {

constexpr std::string_view kPrefix = "MILLRACE_";

bool is_short(std::string_view word) { return word.size() == 2 && word[0] == '-'; }  // "-g"

// Returns the key that a variable names: "OPTIM__LEARNING_RATE" -> "optim.learning_rate".
std::string path_of_variable(std::string_view name) {
  std::string path = to_lower(name);
  for (std::size_t at = path.find("__"); at != std::string::npos; at = path.find("__", at + 1)) path.replace(at, 2, ".");
  return path;
}

// Returns the key that a variable would name if its single underscore stood between section and key: "TRAIN_SEED" ->
// "train.seed". Returns "" if there is no such key, because other variables with our prefix belong to other programs.
std::string key_without_its_dot(const Schema& schema, std::string_view name) {
  const std::string path = to_lower(name);
  for (const Leaf& leaf : schema.leaves) {
    std::string flat = leaf.path;
    std::ranges::replace(flat, '.', '_');
    if (flat == path && flat != leaf.path) return leaf.path;
  }
  return "";
}

std::string variable_of(std::string_view path) {
  std::string name(kPrefix);
  for (const char c : path) {
    if (c == '.') {
      name += "__";
    } else {
      name += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  return name;
}

}  // namespace

void Layers::add_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::ranges::sort(variables);
  add_environment(variables);
}

void Layers::add_environment(std::span<const std::pair<std::string, std::string>> variables) {
  std::string current;
  Layer layer{.origin_of = [&](const std::string&) { return "environment " + current; }, .scalar_text = true};
  for (const auto& [name, value] : variables) {
    if (!name.starts_with(kPrefix)) continue;
    if (name.find("__") == std::string::npos) {
      if (const std::string key = key_without_its_dot(*schema_, std::string_view(name).substr(kPrefix.size())); !key.empty())
        problems_.push_back(
            {.what = "variable " + quoted(name) + " sets nothing: the dot of " + key + " is written as two underscores",
             .where = "environment",
             .next = "write " + variable_of(key) + ", or unset it"});
      continue;
    }
    current = name;
    const std::string path = path_of_variable(std::string_view(name).substr(kPrefix.size()));
    if (schema_->find(path) == nullptr && alias(path) == nullptr) {
      unknown(path, "unknown variable " + quoted(name) + ", for key " + quoted(path), "environment", "");
    } else {
      set(path, value, layer.origin_of(path), layer);
    }
  }
}

std::vector<std::string> Layers::add_flags(std::span<const std::string> words) {
  std::vector<std::string> rest;
  for (std::size_t next = 0; next < words.size();) {
    const std::string& word = words[next++];
    if (word == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(next), words.end());
      break;
    }
    if (is_short(word) && alias(word.substr(1)) != nullptr) {
      add_flag(word.substr(1), nullptr, words, next);
      continue;
    }
    if (!word.starts_with("--")) {
      rest.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    add_flag(word.substr(2, equals == std::string::npos ? equals : equals - 2), equals == std::string::npos ? nullptr : &value,
             words, next);
  }
  return rest;
}

// Takes a flag. `value` is the text after "="; null if there is no "=". `next` is the index of the following word, and is
// advanced if that word is the value.
void Layers::add_flag(const std::string& name, const std::string* value, std::span<const std::string> words, std::size_t& next) {
  Layer layer{.origin_of = {}, .scalar_text = true, .refuses_repeats = false};
  const std::string origin = "flag --" + name;
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    problems_.push_back({.what = what, .where = "command line", .next = remedy});
  };
  struct Target {
    bool is_known = false;
    bool is_boolean = false;    // the flag needs no value, and takes true and false
    bool is_converted = false;  // like is_boolean, but the flag takes numbers too
  };
  const auto find = [&](const std::string& path) -> Target {
    if (const Leaf* leaf = schema_->find(path)) return {true, leaf->is_boolean, false};
    const Alias* other = alias(path);
    if (other == nullptr) return {};
    if (other->path.empty()) return {true, !other->takes_text, !other->takes_text};
    return {true, schema_->find(other->path)->is_boolean, static_cast<bool>(other->convert)};
  };

  const std::string path = with_underscores(name);
  const Target target = find(path);
  if (!target.is_known && path.starts_with("no_")) {
    const Target negated = find(path.substr(3));
    if (negated.is_boolean || negated.is_converted) {
      if (value != nullptr) {
        refuse("flag --" + name + " takes no value", "write --" + name.substr(3) + "=" + *value);
      } else {
        set(path.substr(3), false, origin, layer);
      }
      return;
    }
  }
  if (!target.is_known) {
    unknown(path, "unknown flag --" + name, "command line", "--");
    return;
  }
  if (value != nullptr) {
    set(path, *value, origin, layer);
    return;
  }
  const std::string* word = next < words.size() ? &words[next] : nullptr;
  const bool is_truth = word != nullptr && (*word == "true" || *word == "false");
  const bool is_word = word != nullptr && !word->starts_with("--") && !(is_short(*word) && alias(word->substr(1)) != nullptr);
  // In flags of other programs a number may stand for true or false: --gpu_log_interval 100.
  const bool is_number = is_word && target.is_converted && word->find_first_not_of("0123456789") == std::string::npos;
  if (is_truth || is_number || (is_word && !target.is_boolean)) {
    ++next;
    set(path, *word, origin, layer);
  } else if (target.is_boolean || target.is_converted) {
    set(path, true, origin, layer);
  } else {
    const Alias* other = alias(path);
    const Leaf* leaf = schema_->find(other == nullptr ? path : other->path);
    refuse("flag --" + name + " has no value", "write --" + name + "=<" + (leaf == nullptr ? "text" : leaf->type) + ">");
  }
}

}  // namespace millrace::config
