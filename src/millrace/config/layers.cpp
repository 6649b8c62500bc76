#include <algorithm>
#include <charconv>
#include <system_error>

#include "millrace/base/format.h"
#include "millrace/base/fs.h"
#include "millrace/base/utf8.h"
#include "millrace/config/layer.h"
#include "millrace/config/schema.h"
#include "millrace/config/value_type.h"

namespace millrace::config {
namespace {

constexpr std::uintmax_t kLargestFile = 1U << 20U;

std::string normalized(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Returns the line in "file name:line"; 0 if the text has no line.
std::size_t line_of(std::string_view origin) {
  const std::size_t colon = origin.rfind(':');
  std::size_t line = 0;
  if (colon != std::string_view::npos) std::from_chars(origin.data() + colon + 1, origin.data() + origin.size(), line);
  return line;
}

// Returns false if `value` or anything inside it holds bytes that are not UTF-8.
bool is_valid_text(const Json& value) {
  if (value.is_string()) return !first_invalid_utf8(value.get_ref<const std::string&>());
  return !value.is_structured() || std::ranges::all_of(value, is_valid_text);
}

void assign(Json& values, std::string_view path, Json value) {
  Json* node = &values;
  for (std::size_t begin = 0;;) {
    const std::size_t dot = path.find('.', begin);
    node = &(*node)[std::string(path.substr(begin, dot == std::string_view::npos ? dot : dot - begin))];
    if (dot == std::string_view::npos) break;
    begin = dot + 1;
  }
  *node = std::move(value);
}

// Returns the `value` of a path leaf, prefixed by the folder in which the file was found; unchanged if the file was not found.
Json as_seen_from_here(const Leaf& leaf, Json value, const std::vector<std::filesystem::path>& folders) {
  if (value.is_array()) {
    for (Json& each : value) each = as_seen_from_here(leaf, std::move(each), folders);
    return value;
  }
  if (!value.is_string()) return value;
  const auto& text = value.get_ref<const std::string&>();
  const bool names_none = text.empty() || std::ranges::count(leaf.words_beside_path, text) > 0;
  if (names_none || std::filesystem::path(text).is_absolute()) return value;
  for (const std::filesystem::path& folder : folders) {
    std::error_code code;
    const bool is_here = folder.empty() || folder == ".";
    const std::filesystem::path path = is_here ? std::filesystem::path(text) : folder / text;
    if (std::filesystem::exists(path, code)) return path.string();
  }
  return value;
}

}  // namespace

Layers::Layers(const Schema& schema, std::span<const Alias> aliases)
    : schema_(&schema), aliases_(aliases.begin(), aliases.end()) {
  for (const Alias& each : aliases_) {
    if (each.path.empty() || schema.find(each.path) != nullptr) continue;
    const std::string near = suggestion(each.path);
    throw ConfigError(
        {"alias " + quoted(each.name) + " stands for " + quoted(each.path) + ", which is no key", "Entry::aliases",
         (near.empty() ? "" : "did you mean " + near + "? ") + "name a key of the recipe or of the shared sections"});
  }
}

const Alias* Layers::alias(std::string_view name) const {
  const auto found = std::ranges::find_if(aliases_, [&](const Alias& each) { return normalized(each.name) == normalized(name); });
  return found == aliases_.end() ? nullptr : &*found;
}

bool Layers::is_section(std::string_view path) const {
  const std::string prefix = std::string(path) + ".";
  return std::ranges::any_of(schema_->leaves, [&](const Leaf& leaf) { return leaf.path.starts_with(prefix); }) ||
         std::ranges::any_of(aliases_, [&](const Alias& each) { return each.name.starts_with(prefix); });
}

std::string Layers::suggestion(const std::string& name) const {
  std::vector<std::string> names;
  std::vector<std::string> last_parts;
  for (const Leaf& leaf : schema_->leaves) names.push_back(leaf.path);
  last_parts.reserve(names.size());
  for (const std::string& path : names) last_parts.emplace_back(last_part(path));
  const std::string last(last_part(name));
  if (const auto same = std::ranges::find(last_parts, last); same != last_parts.end()) {
    return names[static_cast<std::size_t>(same - last_parts.begin())];
  }
  for (const Alias& each : aliases_) names.push_back(each.name);
  std::string near = nearest(name, names.data(), names.data() + names.size());
  if (!near.empty()) return near;
  const std::string near_last = nearest(last, last_parts.data(), last_parts.data() + last_parts.size());
  if (near_last.empty()) return "";
  return names[static_cast<std::size_t>(std::ranges::find(last_parts, near_last) - last_parts.begin())];
}

void Layers::unknown(const std::string& name, const std::string& what, const std::string& origin, const std::string& dashes) {
  std::string next;
  const std::string near = suggestion(name);
  if (!near.empty()) {
    next = "did you mean " + dashes + near + "?";
  } else {
    const std::size_t dot = name.find('.');
    const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
    const bool is_known = !section.empty() && is_section(section);
    std::vector<std::string> words;
    for (const Leaf& leaf : schema_->leaves) {
      const bool is_inside = is_known && leaf.path.starts_with(section + ".");
      const std::string word = is_inside ? leaf.path : leaf.path.substr(0, leaf.path.find('.'));
      if ((is_inside || !is_known) && std::ranges::count(words, word) == 0) words.push_back(word);
    }
    next = is_known ? "remove it; the keys of that section are " : "remove it; the sections are ";
    for (std::size_t i = 0; i < words.size(); ++i) next += (i == 0 ? "" : ", ") + words[i];
  }
  problems_.push_back({.what = what, .where = origin, .next = std::move(next)});
}

void Layers::walk(const Json& tree, const std::string& prefix, Layer& layer) {
  std::vector<std::pair<std::size_t, std::string>> names;  // sorted by line, so that problems are reported in this order
  for (const auto& item : tree.items()) names.emplace_back(line_of(layer.origin_of(prefix + item.key())), item.key());
  std::ranges::stable_sort(names, {}, [](const auto& name) { return name.first; });
  for (const auto& [line, name] : names) add_key(prefix + name, tree[name], layer);
}

void Layers::add_key(const std::string& name, const Json& value, Layer& layer) {
  if (last_part(name).starts_with('_')) return;  // formats without comments use such a key as a comment
  const std::string origin = layer.origin_of(name);
  const bool is_subtree = value.is_object() && is_section(name);
  if (schema_->find(name) != nullptr || (!is_subtree && alias(name) != nullptr)) {
    set(name, value, origin, layer);
  } else if (is_subtree) {
    walk(value, name + ".", layer);
  } else if (is_section(name)) {
    const auto first = std::ranges::find_if(schema_->leaves, [&](const Leaf& leaf) { return leaf.path.starts_with(name + "."); });
    const std::string example = first == schema_->leaves.end() ? name + ".<key>" : first->path;
    problems_.push_back({.what = name + " is " + shown(value) + ", but " + name + " is a section",
                         .where = origin,
                         .next = "set a key of the section, such as " + example});
  } else {
    unknown(name, "unknown key " + quoted(name), origin, "");
  }
}

void Layers::set(const std::string& name, const Json& value, const std::string& origin, Layer& layer) {
  if (!is_valid_text(value)) {
    problems_.push_back({.what = name + " is not UTF-8 text", .where = origin, .next = "write it in UTF-8"});
    return;
  }
  const Alias* other = schema_->find(name) == nullptr ? alias(name) : nullptr;
  const std::string& path = other == nullptr ? name : other->path;
  Json converted = value;
  const Json given = layer.scalar_text && value.is_string() ? guessed(value.get_ref<const std::string&>()) : value;
  if (const std::string notice = other != nullptr && other->notice ? other->notice(given) : "";
      !notice.empty() && std::ranges::count(notices_, notice) == 0)
    notices_.push_back(notice);
  if (path.empty()) return;
  if (other != nullptr && other->convert) {
    try {
      converted = other->convert(given);
    } catch (const std::exception&) {
      problems_.push_back({.what = name + " is " + shown(value) + ", which has no meaning for " + path,
                           .where = origin,
                           .next = "set " + path + " instead"});
      return;
    }
    if (converted.is_null()) return;
  }
  const auto [first, is_new] = layer.seen.try_emplace(path, name + ", at " + origin);
  if (!is_new && layer.refuses_repeats) {
    const bool has_both = first->second == name + ", at " + origin;  // true: one name at one origin sets the key twice
    problems_.push_back({.what = path + " is set twice" + (has_both ? "" : ", the second time as " + name),
                         .where = origin,
                         .next = has_both ? "remove one of them" : "remove one of them; the first is " + first->second});
    return;
  }
  sets_.push_back({.path = path,
                   .value = std::move(converted),
                   .scalar_text = layer.scalar_text,
                   .origin = origin,
                   .folders = layer.folders});
}

void Layers::add_values(const Json& values, const std::string& origin, std::vector<std::filesystem::path> folders) {
  Layer layer{.origin_of = [&](const std::string&) { return origin; }, .folders = std::move(folders)};
  MR_CHECK(values.is_object() || values.is_null(), "values of a config must be an object");
  walk(values.is_null() ? Json::object() : values, "", layer);
}

void Layers::add_file(const std::filesystem::path& path) { add_file(path, {}); }

void Layers::add_file(const std::filesystem::path& path, const Convert& convert) {
  const auto refuse = [&](const std::string& what, const std::string& next) {
    is_complete_ = false;
    problems_.push_back({.what = what, .where = path.string(), .next = next});
  };
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) > kLargestFile) {
    refuse("the config file is larger than 1 MB", "is this the right file?");
    return;
  }
  try {
    read_text(Fs::real().read_file(path), path.extension().string(), path.string(), {path.parent_path()}, convert);
  } catch (const FsError& error) {
    refuse("can't read the config file: " + std::generic_category().message(error.error_number()),
           remedy_for(error.error_number()));
  }
}

void Layers::add_text(std::string_view text, std::string_view suffix, const std::string& name) {
  read_text(text, suffix, name, {});
}

void Layers::read_text(std::string_view text, std::string_view suffix, const std::string& name,
                       std::vector<std::filesystem::path> folders, const Convert& convert) {
  std::map<std::string, std::string> origins;
  Layer layer{.origin_of =
                  [&](const std::string& path) {
                    const auto found = origins.find(path);
                    return "file " + (found == origins.end() ? name : found->second);
                  },
              .folders = std::move(folders)};
  const std::size_t before = problems_.size();
  bool is_complete = true;
  Json tree = parse_text(text, suffix, name, origins, problems_, notices_, layer.scalar_text, &is_complete);
  if (convert) {
    std::vector<Problem> problems;
    if (is_complete) {
      Foreign file{.earlier = earlier_, .problems = problems, .notices = notices_};
      Json keys = convert(tree, file);
      earlier_.update(tree);
      tree = std::move(keys);
    }
    for (Problem& problem : problems) {
      const auto found = origins.find(problem.where);  // if `where` is a key of the file, its line is known
      problem.where = found == origins.end() ? name : found->second;
      problems_.push_back(std::move(problem));
    }
  }
  is_complete_ = is_complete_ && is_complete;
  for (std::size_t i = before; i < problems_.size(); ++i) problems_[i].where = "file " + problems_[i].where;
  walk(tree, "", layer);
}

void Layers::add_problem(Problem problem) { problems_.push_back(std::move(problem)); }

std::optional<Json> Layers::last(std::string_view path) const {
  for (auto each = sets_.rbegin(); each != sets_.rend(); ++each) {
    if (each->path == path) return each->value;
  }
  return std::nullopt;
}

std::optional<std::string> Layers::last_path(std::string_view path) const {
  const auto each = std::ranges::find(sets_.rbegin(), sets_.rend(), path, &Set::path);
  if (each == sets_.rend() || !each->value.is_string()) return std::nullopt;
  return as_seen_from_here(*schema_->find(path), each->value, each->folders).get<std::string>();
}

Resolved Layers::resolve() const {
  std::vector<Problem> problems = problems_;
  Resolved resolved{.values = Json::object(), .origins = {}, .notices = notices_};
  for (const Leaf& leaf : schema_->leaves) {
    assign(resolved.values, leaf.path, leaf.default_value);
    resolved.origins[leaf.path] = "default";
  }
  for (const Set& each : sets_) {
    const std::size_t before = problems.size();
    const Leaf& leaf = *schema_->find(each.path);
    Json value = leaf.canonical(each.value, each.scalar_text, problems);
    if (leaf.is_path) value = as_seen_from_here(leaf, std::move(value), each.folders);
    for (std::size_t i = before; i < problems.size(); ++i) problems[i].where = each.origin;
    assign(resolved.values, each.path, std::move(value));
    resolved.origins[each.path] = each.origin;
  }
  for (const Leaf& leaf : schema_->leaves) {
    if (!leaf.required || !is_complete_ || resolved.origins[leaf.path] != "default") continue;
    problems.push_back({.what = leaf.path + " is required and not set",
                        .where = "no file, variable or flag sets it",
                        .next = "add it to the config, or --" + leaf.path + "=<" + leaf.type + ">: " + leaf.help});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return resolved;
}

}  // namespace millrace::config
