#include "millrace/config/detail/tree_builder.h"

#include "millrace/base/format.h"

namespace millrace::config::detail {
namespace {

constexpr std::size_t kDeepestTree = 32;     // a config needs few levels: sections, keys and sometimes a list of objects
constexpr std::size_t kMostValues = 100000;  // enough for a long list of files

}  // namespace

std::string TreeBuilder::place(std::size_t line, std::size_t column) const {
  std::string text = name_;
  if (line > 0) text += ":" + std::to_string(line);
  if (line > 0 && column > 0) text += ":" + std::to_string(column);
  return text;
}

void TreeBuilder::problem(std::string what, std::size_t line, std::string next, std::size_t column) {
  is_complete_ = false;
  problems_.push_back({.what = std::move(what), .where = place(line, column), .next = std::move(next)});
}

bool TreeBuilder::count_value(std::size_t line) {
  if (++values_ <= kMostValues) return true;
  problem("the text has more than " + with_commas(kMostValues) + " values", line,
          "a config can't hold data: name a file instead");
  return false;
}

bool TreeBuilder::key(std::string text, std::size_t line) {
  const std::string path = paths_.back().empty() ? text : paths_.back() + "." + text;
  if (open_.back().contains(text)) {
    problems_.push_back({.what = "key " + quoted(path) + " appears twice",
                         .where = place(line),
                         .next = "remove one of them; the first is at " + origins_[path]});
  } else {
    const auto [depth, is_new] = depths_.try_emplace(path, open_.size());
    std::string& origin = origins_[path];
    // True if the key is written once as section and key, and once with a dot.
    const bool in_another_form = !is_new && depth->second != open_.size();
    origin = (in_another_form ? origin + " and " : "") + place(line);
  }
  key_ = std::move(text);
  has_key_ = true;
  return true;
}

bool TreeBuilder::add(Json value) {
  if (open_.empty()) {
    root_ = std::move(value);
    has_root_ = true;
  } else if (open_.back().is_array()) {
    open_.back().push_back(std::move(value));
  } else {
    open_.back().emplace(key_, std::move(value));  // if a key appears twice, its first value stays
    has_key_ = false;
  }
  return true;
}

bool TreeBuilder::value(Json value, std::size_t line) { return count_value(line) && add(std::move(value)); }

bool TreeBuilder::begin(Json container, std::size_t line) {
  if (!count_value(line)) return false;
  if (open_.size() >= kDeepestTree) {
    problem("values are nested more than " + std::to_string(kDeepestTree) + " deep", line,
            "sections hold keys, and keys hold values or lists");
    return false;
  }
  std::string path;
  if (!open_.empty()) {
    path = paths_.back();
    if (open_.back().is_object()) path += path.empty() ? key_ : "." + key_;
  }
  pending_keys_.push_back(key_);
  paths_.push_back(std::move(path));
  open_.push_back(std::move(container));
  has_key_ = false;
  return true;
}

bool TreeBuilder::end() {
  Json done = std::move(open_.back());
  key_ = std::move(pending_keys_.back());
  open_.pop_back();
  paths_.pop_back();
  pending_keys_.pop_back();
  return add(std::move(done));
}

Json TreeBuilder::take() {
  while (!open_.empty()) end();  // the parser stopped half-way; the part that it has read is still checked
  if (!has_root_ || root_.is_null()) return Json::object();
  if (root_.is_object()) return std::move(root_);
  if (!is_complete_) return Json::object();
  problem(std::string("the file holds ") + (root_.is_array() ? "a list" : "a single value") + ", expected sections with keys", 1,
          "write the keys of the config, such as optim.learning_rate");
  return Json::object();
}

std::string_view line_at(std::string_view text, std::size_t at) {
  const std::size_t begin = text.substr(0, at).rfind('\n');
  text.remove_prefix(begin == std::string_view::npos ? 0 : begin + 1);
  return text.substr(0, text.find('\n'));
}

std::string range_hint(std::string_view line, std::string otherwise) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 1; i + 1 < line.size(); ++i) {
    if (line[i] == '-' && is_digit(line[i - 1]) && is_digit(line[i + 1])) {
      return "a range such as 6-8 is not a value: choose one number in it";
    }
  }
  return otherwise;
}

}  // namespace millrace::config::detail
