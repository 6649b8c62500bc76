#include "recipes/neural_response/sessions/dataset_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/utf8.h"
#include "millrace/config/schema.h"

namespace millrace::recipes::neural_response {
namespace {

// Adds the keys of `over` to `base`. If both have a map under a key, the maps are merged; any other value is replaced.
void put_over(Json& base, const Json& over) {
  for (const auto& [key, value] : over.items()) {
    if (base.contains(key) && base[key].is_object() && value.is_object()) {
      put_over(base[key], value);
    } else {
      base[key] = value;
    }
  }
}

constexpr double kLargestWhole = 9007199254740992.0;  // a double can't represent every whole number from here on

}  // namespace

Tree read_tree(const std::filesystem::path& path, std::vector<Problem>& problems) {
  Tree tree;
  tree.file = path.string();
  std::string text;
  try {
    text = Fs::real().read_file(path);
  } catch (const FsError& error) {
    problems.push_back(
        {"can't read the dataset file " + quoted(path.filename().string()), error.what(), remedy_for(error.error_number())});
    return tree;
  }
  std::vector<std::string> notices;
  bool scalars_are_text = false;
  tree.values =
      config::parse_text(text, path.extension().string(), path.string(), tree.places, problems, notices, scalars_are_text);
  return tree;
}

Tree merged(const Tree& base, const Tree& over) {
  Tree both = base;
  put_over(both.values, over.values);
  for (const auto& [path, place] : over.places) both.places[path] = place;
  both.file = over.file;
  return both;
}

std::string suggestion_among(std::string_view word, std::span<const std::string_view> known) {
  const std::vector<std::string> names(known.begin(), known.end());
  const std::string near = nearest(word, names.data(), names.data() + names.size());
  return near.empty() ? "known: " + joined(names, ", ") : "did you mean " + quoted(near) + "?";
}

Node Node::at(const std::string& key) const {
  const bool there = is_object() && value_->contains(key) && !(*value_)[key].is_null();
  return {*tree_, *problems_, there ? &(*value_)[key] : nullptr, path_.empty() ? key : path_ + "." + key};
}

std::vector<std::string> Node::keys() const {
  std::vector<std::string> keys;
  if (!is_object()) return keys;
  for (const auto& [key, value] : value_->items()) {
    if (!key.starts_with('_')) keys.push_back(key);
  }
  return keys;
}

std::vector<Node> Node::items() const {
  std::vector<Node> items;
  if (!is_list()) return items;
  for (const Json& value : *value_) items.push_back({*tree_, *problems_, &value, path_});
  return items;
}

std::string Node::place() const {
  std::string path = path_;
  while (true) {
    if (const auto it = tree_->places.find(path); it != tree_->places.end()) return it->second;
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos) return tree_->file;
    path.resize(dot);
  }
}

std::int64_t Node::line() const {
  const std::string text = place();
  const std::size_t colon = text.rfind(':');
  std::int64_t line = 0;
  if (colon != std::string::npos) std::from_chars(text.data() + colon + 1, text.data() + text.size(), line);
  return line;
}

void Node::problem(std::string what, std::string next) const {
  problems_->push_back({std::move(what), place(), std::move(next)});
}

void Node::expected(const char* kind) const {
  const std::string is = value_->is_string() ? quoted(value_->get<std::string>()) : value_->dump();
  problem(path_ + " is " + (is.size() > 40 ? is.substr(0, 40) + "..." : is) + ", expected " + kind, "correct the value");
}

std::optional<double> Node::as_number() const {
  if (value_->is_number()) return value_->get<double>();
  if (!value_->is_string()) return std::nullopt;
  const auto& text = value_->get_ref<const std::string&>();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

double Node::number(double otherwise) const {
  if (is_empty()) return otherwise;
  const auto number = as_number();
  if (number && std::isfinite(*number)) return *number;
  expected("a number");
  return otherwise;
}

std::int64_t Node::whole(std::int64_t otherwise, std::int64_t least) const {
  if (is_empty()) return otherwise;
  const auto number = as_number();
  if (number && std::floor(*number) == *number && *number >= static_cast<double>(least) && *number <= kLargestWhole)
    return static_cast<std::int64_t>(*number);
  expected(("a whole number of " + std::to_string(least) + " or more").c_str());
  return otherwise;
}

bool Node::truth(bool otherwise) const {
  if (is_empty()) return otherwise;
  if (value_->is_boolean()) return value_->get<bool>();
  const std::string word = value_->is_string() ? to_lower(value_->get<std::string>()) : "";
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  expected("true or false");
  return otherwise;
}

std::string Node::text(const std::string& otherwise) const {
  if (is_empty()) return otherwise;
  if (value_->is_string()) return value_->get<std::string>();
  expected("text");
  return otherwise;
}

std::vector<std::int64_t> Node::wholes() const {
  std::vector<std::int64_t> all;
  if (exists() && !is_list()) return {whole(0)};
  for (const Node& item : items()) all.push_back(item.whole(0));
  return all;
}

std::vector<double> Node::numbers(std::vector<double> otherwise) const {
  if (is_empty()) return otherwise;
  if (!is_list()) {
    expected("a list of numbers");
    return otherwise;
  }
  std::vector<double> all;
  for (const Node& item : items()) all.push_back(item.number(0));
  return all;
}

std::vector<std::string> Node::texts(std::vector<std::string> otherwise) const {
  if (is_empty()) return otherwise;
  if (!is_list()) return {text("")};
  std::vector<std::string> all;
  for (const Node& item : items()) all.push_back(item.text(""));
  return all;
}

void Node::must_be_map() const {
  if (!is_empty() && !is_object()) expected("keys with values");
}

void Node::only(std::string_view what, std::span<const std::string_view> known, std::span<const std::string_view> ignored,
                std::string_view of) const {
  must_be_map();
  for (const std::string& key : keys()) {
    const auto is_key = [&key](std::string_view name) { return name == key; };
    if (std::any_of(known.begin(), known.end(), is_key) || std::any_of(ignored.begin(), ignored.end(), is_key)) continue;
    at(key).problem("unknown " + std::string(what) + " " + quoted(key) + std::string(of), suggestion_among(key, known));
  }
}

}  // namespace millrace::recipes::neural_response
