#include "millrace/config/schema.h"

#include <algorithm>

#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"

namespace millrace::config {

const Leaf* Schema::find(std::string_view path) const {
  const auto found = std::ranges::find(leaves, path, &Leaf::path);
  return found == leaves.end() ? nullptr : &*found;
}

Schema& Schema::operator+=(const Schema& other) {
  for (const Leaf& leaf : other.leaves) {
    if (find(leaf.path) != nullptr) {
      throw ConfigError({"config key " + quoted(leaf.path) + " is declared twice", "Entry::sections, and the shared sections",
                         "give the recipe's section or key another name"});
    }
    leaves.push_back(leaf);
  }
  groups.insert(other.groups.begin(), other.groups.end());
  return *this;
}

Json::json_pointer pointer_to(std::string key) {
  std::ranges::replace(key, '.', '/');
  return Json::json_pointer("/" + key);
}

void detail::wrong_kind(const char* expected, const Json& value) {
  throw InternalError({.what = std::string("a config value is ") + shown(value) + ", but read() expected " + expected,
                       .where = "",
                       .next = "resolve the config before reading it"});
}

ValueType detail::wrap(ValueType::Kind kind, ValueType inner) {
  ValueType type{.kind = kind};
  type.inner.push_back(std::move(inner));
  return type;
}

ValueType detail::as_path(ValueType type) {
  if (type.kind == ValueType::Kind::text) type.kind = ValueType::Kind::path;
  for (ValueType& inner : type.inner) inner = as_path(std::move(inner));
  return type;
}

std::vector<std::string> detail::words_between_bars(std::string_view words) {
  std::vector<std::string> list;
  while (!words.empty()) {
    const std::size_t bar = std::min(words.find('|'), words.size());
    list.emplace_back(words.substr(0, bar));
    words.remove_prefix(std::min(bar + 1, words.size()));
  }
  return list;
}

Leaf detail::make_leaf(std::string path, std::string_view help, std::string_view unit, ValueType type, const Limits& limits,
                       Json default_value, bool required) {
  Leaf leaf{.path = std::move(path),
            .type = type_text(type),
            .help = std::string(help),
            .range = limits_text(type, limits),
            .unit = std::string(unit),
            .default_value = std::move(default_value),
            .required = required,
            .is_boolean = is_boolean(type)};
  const ValueType* inner = &type;
  for (; !inner->inner.empty() && inner->kind != ValueType::Kind::choice; inner = &inner->inner.front()) {
    if (inner->kind == ValueType::Kind::automatic) leaf.choices.emplace_back("auto");
  }
  leaf.is_path = inner->kind == ValueType::Kind::path;
  if (inner->words.empty()) leaf.choices.clear();
  leaf.choices.insert(leaf.choices.end(), inner->words.begin(), inner->words.end());
  leaf.canonical = [type = std::move(type), limits, name = leaf.path, fallback = leaf.default_value](
                       const Json& value, bool scalar_text, std::vector<Problem>& problems) {
    return canonical_value(type, limits, value, name, scalar_text, problems).value_or(fallback);
  };
  return leaf;
}

}  // namespace millrace::config
