// Turns the text of a config file into a tree, by the file's suffix.
#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/base/text_encoding.h"
#include "millrace/base/utf8.h"
#include "millrace/config/detail/tree_builder.h"
#include "millrace/config/schema.h"

namespace millrace::config {
namespace {

constexpr std::size_t kLargestText = 1U << 20U;  // each of the three parsers needs at most a second for a text of this size

// Returns true for UTF-8 text of at most kLargestText bytes. For any other text adds a problem and returns false.
bool is_text(std::string_view text, const std::string& name, detail::TreeBuilder& tree) {
  if (text.size() > kLargestText) {
    tree.problem("the file has " + human_bytes(static_cast<double>(text.size())) + ", but a config has at most 1 MB", 0,
                 "is this the right file?");
    return false;
  }
  if (const std::optional<NoText> other = other_than_text(text, name)) {
    tree.problem("the file " + other->is, 1, other->next);
    return false;
  }
  const std::size_t bad = std::min(first_invalid_utf8(text).value_or(text.size()), text.find('\0'));
  if (bad >= text.size()) return true;
  const auto line = 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n'));
  tree.problem("byte " + std::to_string(bad) + " of the file is not UTF-8 text", line, "save the file as UTF-8");
  return false;
}

}  // namespace

Json parse_text(std::string_view text, std::string_view suffix, const std::string& name,
                std::map<std::string, std::string>& origins, std::vector<Problem>& problems, std::vector<std::string>& notices,
                bool& scalars_are_text, bool* is_complete) {
  detail::TreeBuilder tree(name, origins, problems);
  scalars_are_text = false;
  if (is_complete != nullptr) *is_complete = false;
  if (!is_text(text, name, tree)) return Json::object();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string kind = to_lower(suffix);
  if (kind == ".json") {
    detail::parse_json(text, tree);
  } else if (kind == ".toml") {
    detail::parse_toml(text, tree, notices);
  } else if (kind == ".yaml" || kind == ".yml") {
    scalars_are_text = true;
    detail::parse_yaml(text, tree);
  } else {
    tree.problem("the suffix " + quoted(suffix) + " is not that of a config file", 0,
                 "name the file .json, .toml, .yaml or .yml");
  }
  Json root = tree.take();
  if (is_complete != nullptr) *is_complete = tree.is_complete();
  return root;
}

}  // namespace millrace::config
