// The tree of a parsed dataset file: reads values by type, reports problems with their line, and finds unknown names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::recipes::neural_response {

// A parsed file. YAML has no types, so its values are texts. The readers of Node accept a value as text or in its own type.
struct Tree {
  Json values = Json::object();
  std::map<std::string, std::string> places;  // dotted path -> "file:line"
  std::string file;
};

// Parses the file. Its faults are added to `problems`.
[[nodiscard]] Tree read_tree(const std::filesystem::path& path, std::vector<Problem>& problems);
// Returns `base` with the keys of `over`, which replace those of `base` one by one; a list is replaced as a whole.
[[nodiscard]] Tree merged(const Tree& base, const Tree& over);

// A value of a tree, which may be absent. For an absent value the readers return their default. Problems are collected and do
// not throw.
class Node {
 public:
  Node(const Tree& tree, std::vector<Problem>& problems) : Node(tree, problems, &tree.values, "") {}

  [[nodiscard]] bool exists() const { return value_ != nullptr; }
  [[nodiscard]] bool is_object() const { return exists() && value_->is_object(); }
  [[nodiscard]] bool is_list() const { return exists() && value_->is_array(); }
  [[nodiscard]] bool is_empty() const { return !exists() || value_->is_null(); }
  [[nodiscard]] Node at(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;  // keys of a map; keys that begin with _ are comments and are left out
  [[nodiscard]] std::vector<Node> items() const;        // elements of a list
  [[nodiscard]] std::string place() const;              // "file:line" of the value, or of the nearest value that contains it
  [[nodiscard]] std::int64_t line() const;              // 0: unknown
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const Json& json() const { return *value_; }

  [[nodiscard]] double number(double otherwise) const;
  [[nodiscard]] std::int64_t whole(std::int64_t otherwise, std::int64_t least = 0) const;
  [[nodiscard]] bool truth(bool otherwise) const;
  [[nodiscard]] std::string text(const std::string& otherwise) const;
  [[nodiscard]] std::vector<std::int64_t> wholes() const;
  [[nodiscard]] std::vector<double> numbers(std::vector<double> otherwise) const;
  [[nodiscard]] std::vector<std::string> texts(std::vector<std::string> otherwise) const;

  void problem(std::string what, std::string next) const;
  // Adds a problem if the value exists and is not a map.
  void must_be_map() const;
  // Adds a problem for each key of the map that is neither in `known` nor in `ignored`: "unknown", then `what`, the key and
  // `of`. The problem also names the nearest known key.
  void only(std::string_view what, std::span<const std::string_view> known, std::span<const std::string_view> ignored = {},
            std::string_view of = "") const;

 private:
  Node(const Tree& tree, std::vector<Problem>& problems, const Json* value, std::string path)
      : tree_(&tree), problems_(&problems), value_(value), path_(std::move(path)) {}
  [[nodiscard]] std::optional<double> as_number() const;
  void expected(const char* kind) const;

  const Tree* tree_;
  std::vector<Problem>* problems_;
  const Json* value_;
  std::string path_;
};

// A hint for a wrong word, such as "did you mean \"x\"?", or "known: a, b, c".
[[nodiscard]] std::string suggestion_among(std::string_view word, std::span<const std::string_view> known);

}  // namespace millrace::recipes::neural_response
