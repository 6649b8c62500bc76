// Reads TOML with toml++. Config files of the original programs hold `resume = null`, although TOML has no null. Such a null is
// accepted, with a notice.
#include <algorithm>
#include <set>
#include <sstream>

#include <toml++/toml.h>

#include "millrace/base/format.h"
#include "millrace/config/detail/tree_builder.h"

namespace millrace::config::detail {
namespace {

constexpr std::size_t kMostDots = 32;  // the most dots in one key; toml++ itself limits only the depth of brackets

struct NullPatch {
  std::string text;             // the text, in which each null is replaced by ""
  std::set<std::size_t> lines;  // the lines in which a null was replaced
};

// Replaces the null in lines `key = null` outside multi-line strings. Byte positions stay the same.
NullPatch patch_nulls(std::string_view text) {
  NullPatch patch{.text = std::string(text)};
  constexpr std::string_view kSpace = " \t\r";
  bool inside_string = false;
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = text.substr(begin, end - begin);
    const std::size_t equals = content.find('=');
    if (!inside_string && equals != std::string_view::npos &&
        content.substr(0, equals).find_first_of("#\"'") == std::string_view::npos) {
      const std::size_t value = content.find_first_not_of(kSpace, equals + 1);
      if (value != std::string_view::npos && content.substr(value).starts_with("null")) {
        const std::size_t rest = content.find_first_not_of(kSpace, value + 4);
        if (rest == std::string_view::npos || content[rest] == '#') {
          patch.text.replace(begin + value, 4, "\"\"  ");
          patch.lines.insert(line);
        }
      }
    }
    for (const std::string_view quote : {"\"\"\"", "'''"}) {
      for (std::size_t at = content.find(quote); at != std::string_view::npos; at = content.find(quote, at + 3)) {
        inside_string = !inside_string;
      }
    }
    begin = end + 1;
  }
  return patch;
}

// Returns the line of the first key with more than kMostDots dots; 0 if there is no such key. Such a key is rejected before
// toml++ reads it, because toml++ recurses once per dot. Like toml++, this function skips strings and comments.
std::size_t line_of_deep_key(std::string_view text) {
  // Returns the position after the end of the string that begins at `at`. If the string is never closed, returns the position
  // where toml++ will stop.
  const auto past = [&](std::size_t at, std::string_view end, bool has_escapes) {
    for (; at < text.size() && !text.substr(at).starts_with(end); ++at) {
      if (end.size() == 1 && text[at] == '\n') return at;
      if (has_escapes && text[at] == '\\') ++at;
    }
    return std::min(at + end.size(), text.size());
  };
  std::size_t line = 1;
  std::size_t dots = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at++;
    const char c = text[begin];
    if (c == '"' || c == '\'') {
      const bool is_long = text.substr(begin).starts_with(std::string(3, c));
      const std::string end(is_long ? 3 : 1, c);
      at = past(begin + end.size(), end, c == '"');
      // Up to two quotes of a long string's text may stand directly before its closing quotes.
      for (int i = 0; is_long && i < 2 && at < text.size() && text[at] == c; ++i) ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '.') {
      if (++dots > kMostDots) return line;
    } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
      dots = 0;
    }
    const auto from = text.begin() + static_cast<std::ptrdiff_t>(begin);
    line += static_cast<std::size_t>(std::count(from, from + static_cast<std::ptrdiff_t>(at - begin), '\n'));
  }
  return 0;
}

class Walker {
 public:
  Walker(TreeBuilder& tree, const std::set<std::size_t>& null_lines) : tree_(tree), null_lines_(null_lines) {}

  bool table(const toml::table& table) {
    if (!tree_.begin(Json::object(), table.source().begin.line)) return false;
    // The items in the order of the file, so that problems are reported in that order.
    std::vector<std::pair<const toml::key*, const toml::node*>> items;
    for (const auto& [key, node] : table) items.emplace_back(&key, &node);
    std::ranges::stable_sort(items, {}, [](const auto& item) { return item.first->source().begin.line; });
    for (const auto& [key, node] : items) {
      if (!tree_.key(std::string(key->str()), key->source().begin.line) || !value(*node)) return false;
    }
    return tree_.end();
  }

 private:
  bool value(const toml::node& node) {
    const std::size_t line = node.source().begin.line;
    if (const toml::table* table_node = node.as_table()) return table(*table_node);
    if (const toml::array* array = node.as_array()) {
      if (!tree_.begin(Json::array(), line)) return false;
      return std::ranges::all_of(*array, [&](const toml::node& item) { return value(item); }) && tree_.end();
    }
    return tree_.value(scalar(node, line), line);
  }

  Json scalar(const toml::node& node, std::size_t line) const {
    if (const auto* text = node.as_string()) {
      if (text->get().empty() && null_lines_.contains(line)) return nullptr;
      return text->get();
    }
    if (const auto* number = node.as_integer()) return number->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* truth = node.as_boolean()) return truth->get();
    std::ostringstream text;  // no key takes a date or a time, so the text is needed only for a message
    node.visit([&](const auto& any) {
      if constexpr (toml::is_date<decltype(any)> || toml::is_time<decltype(any)> || toml::is_date_time<decltype(any)>) {
        text << any.get();
      }
    });
    return text.str();
  }

  TreeBuilder& tree_;
  const std::set<std::size_t>& null_lines_;
};

}  // namespace

void parse_toml(std::string_view text, TreeBuilder& tree, std::vector<std::string>& notices) {
  if (const std::size_t line = line_of_deep_key(text); line > 0) {
    tree.problem("a key has more than " + std::to_string(kMostDots) + " dots", line,
                 "sections hold keys, and keys hold values or lists");
    return;
  }
  const NullPatch patch = patch_nulls(text);
  try {
    const toml::table root = toml::parse(std::string_view(patch.text));
    for (const std::size_t line : patch.lines)
      notices.push_back(tree.place(line) + ": null is not TOML; it is read as an empty text");
    Walker(tree, patch.lines).table(root);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    std::size_t offset = 0;
    for (toml::source_index line = 1; line < at.line && offset < text.size(); ++line) offset = text.find('\n', offset) + 1;
    tree.problem("syntax error in TOML: " + std::string(error.description()), at.line,
                 range_hint(line_at(text, offset), "correct this place; put text in quotes and lists in brackets"), at.column);
  }
}

}  // namespace millrace::config::detail
