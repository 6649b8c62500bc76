// Builds a tree from the events of a parser, and records the line of each key and the problems. The parsers of all three file
// formats use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::config::detail {

// A parser calls these functions in document order. Each returns false if the parser should stop, because the text is too deep or
// too large.
class TreeBuilder {
 public:
  TreeBuilder(std::string name, std::map<std::string, std::string>& origins, std::vector<Problem>& problems)
      : name_(std::move(name)), origins_(origins), problems_(problems) {}

  bool key(std::string text, std::size_t line);
  bool value(Json value, std::size_t line);
  bool begin(Json container, std::size_t line);  // `container`: an empty object or an empty array
  bool end();
  // Returns the document; an empty object, with a problem, if the document isn't an object.
  [[nodiscard]] Json take();
  // Adds a problem that ends the reading of this text.
  void problem(std::string what, std::size_t line, std::string next, std::size_t column = 0);
  [[nodiscard]] std::string place(std::size_t line, std::size_t column = 0) const;  // "name:line:column"
  // Returns false if a problem ended the reading of the text early. Keys that seem to be missing may then be in the unread part.
  [[nodiscard]] bool is_complete() const noexcept { return is_complete_; }
  [[nodiscard]] bool expects_key() const noexcept { return !open_.empty() && open_.back().is_object() && !has_key_; }

 private:
  bool add(Json value);
  bool count_value(std::size_t line);

  std::string name_;
  std::map<std::string, std::string>& origins_;
  std::map<std::string, std::size_t> depths_;  // number of containers that were open when each path was first found
  std::vector<Problem>& problems_;
  std::vector<Json> open_;                 // containers from the root to the innermost
  std::vector<std::string> paths_;         // dotted path of each open container
  std::vector<std::string> pending_keys_;  // key under which each container goes into its parent
  std::string key_;
  bool has_key_ = false;
  Json root_;
  bool has_root_ = false;
  std::size_t values_ = 0;
  bool is_complete_ = true;
};

// Returns the advice about a syntax error in `line`. If `line` holds a range such as 6-8, the advice is about the range; else it
// is `otherwise`.
[[nodiscard]] std::string range_hint(std::string_view line, std::string otherwise);
// Returns the line of `text` that holds byte `at`.
[[nodiscard]] std::string_view line_at(std::string_view text, std::size_t at);

// The parsers, one for each format. They pass the contents of `text`, which is valid UTF-8 without a byte-order mark, to `tree`.
void parse_json(std::string_view text, TreeBuilder& tree);
void parse_toml(std::string_view text, TreeBuilder& tree, std::vector<std::string>& notices);
void parse_yaml(std::string_view text, TreeBuilder& tree);

}  // namespace millrace::config::detail
