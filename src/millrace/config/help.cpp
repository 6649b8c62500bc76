// --help and the reference page, made from the schema.
#include <algorithm>
#include <cmath>

#include "millrace/config/schema.h"
#include "millrace/config/value_type.h"

namespace millrace::config {
namespace {

constexpr std::size_t kWidestOption = 38;  // the help of a longer option begins on the next line

std::string section_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(path.substr(0, dot));
}

// Returns the columns of a text on a terminal; every code point counts as one column.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string default_text(const Leaf& leaf) {
  if (leaf.required) return "required";
  const Json& value = leaf.default_value;
  if (value.is_string() && value.get_ref<const std::string&>().empty()) return "\"\"";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float() && value == std::floor(value.get<double>()) && std::abs(value.get<double>()) < 1e15) {
    return std::to_string(value.get<std::int64_t>());
  }
  return value.dump();
}

std::string type_and_range(const Leaf& leaf) {
  std::string text = leaf.type;
  if (!leaf.range.empty()) text += " " + leaf.range;
  if (!leaf.unit.empty()) text += " (" + leaf.unit + ")";
  return text;
}

// Returns `text` in lines of at most `width` columns; the second and later lines are indented by `margin`.
std::string wrapped(std::string_view text, std::size_t margin, std::size_t width) {
  std::string result;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (used > 0 && used + 1 + columns(word) > width) {
      result += "\n" + std::string(margin, ' ');
      used = 0;
    }
    if (used > 0) {
      result += ' ';
      ++used;
    }
    result += word;
    used += columns(word);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return result;
}

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

// Returns the names of the sections, in order of their first leaf.
std::vector<std::string> sections(const Schema& schema) {
  std::vector<std::string> names;
  for (const Leaf& leaf : schema.leaves) {
    const std::string name = section_of(leaf.path);
    if (std::ranges::count(names, name) == 0) names.push_back(name);
  }
  return names;
}

std::string group_help(const Schema& schema, const std::string& section) {
  const auto found = schema.groups.find(section);
  return found == schema.groups.end() ? "" : found->second;
}

}  // namespace

std::string help_text(const Schema& schema, int width) {
  std::size_t option_width = 0;
  for (const Leaf& leaf : schema.leaves) {
    const std::size_t option = leaf.path.size() + 4;
    if (option <= kWidestOption) option_width = std::max(option_width, option);
  }
  const std::size_t margin = option_width + 2;
  const std::size_t room = std::max<std::size_t>(static_cast<std::size_t>(std::max(width, 0)), margin + 24) - margin;
  std::string text;
  for (const std::string& section : sections(schema)) {
    const std::string help = group_help(schema, section);
    if (!text.empty()) text += '\n';
    if (!section.empty()) text.append(section).append(help.empty() ? "" : ": ").append(help).append("\n");
    for (const Leaf& leaf : schema.leaves) {
      if (section_of(leaf.path) != section) continue;
      const std::string option = "  --" + leaf.path;
      text += option;
      text += option.size() > option_width ? "\n" + std::string(margin, ' ') : std::string(margin - option.size(), ' ');
      text += wrapped(leaf.help + " [" + type_and_range(leaf) + "; " + default_text(leaf) + "]", margin, room) + "\n";
    }
  }
  return text;
}

std::string reference_markdown(const Schema& schema, std::span<const Alias> aliases) {
  std::string text;
  for (const std::string& section : sections(schema)) {
    const std::string help = group_help(schema, section);
    if (!text.empty()) text += '\n';
    if (!section.empty()) text += "## " + section + "\n\n";
    if (!help.empty()) text += help + "\n\n";
    text += "| Key | Type | Default | Meaning |\n|---|---|---|---|\n";
    for (const Leaf& leaf : schema.leaves) {
      if (section_of(leaf.path) != section) continue;
      text += "| `" + leaf.path + "` | " + markdown_cell(type_and_range(leaf)) + " | `" + markdown_cell(default_text(leaf)) +
              "` | " + markdown_cell(leaf.help) + " |\n";
    }
  }
  if (aliases.empty()) return text;
  text += "\n## Other names\n\n| Name | Stands for | Note |\n|---|---|---|\n";
  for (const Alias& alias : aliases) {
    const std::string path = alias.path.empty() ? "" : "`" + alias.path + "`";
    text += "| `" + markdown_cell(alias.name) + "` | " + path + " | " + markdown_cell(alias.note) + " |\n";
  }
  return text;
}

}  // namespace millrace::config
