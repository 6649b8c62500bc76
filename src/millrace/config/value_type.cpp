#include "millrace/config/value_type.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::config {
namespace {

using Kind = ValueType::Kind;

constexpr std::size_t kLongestShown = 60;  // the most bytes of a value that a message shows

std::string plural(const std::string& type) {
  if (type == "number" || type == "integer" || type == "text" || type == "path") return type + "s";
  return type;
}

bool is_numeric(const ValueType& type) {
  if (type.kind == Kind::integer || type.kind == Kind::number) return true;
  return std::any_of(type.inner.begin(), type.inner.end(), is_numeric);
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  return Json(value).dump();
}

std::string bounds_text(const Limits& limits) {
  std::string text;
  if (std::isfinite(limits.minimum)) text = (limits.minimum_open ? "> " : ">= ") + number_text(limits.minimum);
  if (!std::isfinite(limits.maximum)) return text;
  if (!text.empty()) text += " and ";
  return text + (limits.maximum_open ? "< " : "<= ") + number_text(limits.maximum);
}

// Returns one text that says what each alternative of a choice expects: "an integer >= 1 or a number > 0".
std::string alternatives(const ValueType& type, const Limits& limits) {
  std::string text;
  for (const ValueType& inner : type.inner) {
    if (!text.empty()) text += " or ";
    text += expectation_text(inner, limits);
  }
  return text;
}

std::string list_expectation(const ValueType& type, const Limits& limits) {
  const std::string inner = plural(type_text(type.inner.front()));
  const std::string size = size_text(limits);
  std::string text = size.empty() ? "a list of " + inner : "a list of " + size + " " + inner;
  if (!is_numeric(type)) return text;
  const std::string bounds = bounds_text(limits);
  return bounds.empty() ? text : text + " " + bounds;
}

}  // namespace

std::string size_text(const Limits& limits) {
  std::string least = std::to_string(limits.least_size);
  const std::string greatest = std::to_string(limits.greatest_size);
  if (limits.least_size == limits.greatest_size) return least;
  if (limits.greatest_size == std::numeric_limits<std::int64_t>::max()) return limits.least_size == 0 ? "" : "at least " + least;
  return limits.least_size == 0 ? "at most " + greatest : least + " to " + greatest;
}

std::string type_text(const ValueType& type) {
  switch (type.kind) {
    case Kind::boolean:
      return "true|false";
    case Kind::integer:
      return "integer";
    case Kind::number:
      return "number";
    case Kind::text:
      return "text";
    case Kind::path:
      return "path";
    case Kind::word:
      return joined(type.words, "|");
    case Kind::nullable:
      return type_text(type.inner.front()) + "|null";
    case Kind::automatic:
      return "auto|" + type_text(type.inner.front());
    case Kind::list:
      return "list of " + plural(type_text(type.inner.front()));
    case Kind::map:
      return "map of " + plural(type_text(type.inner.front()));
    case Kind::choice: {
      std::vector<std::string> words;
      for (const ValueType& inner : type.inner) words.push_back(type_text(inner));
      return joined(words, "|");
    }
    case Kind::record: {
      std::vector<std::string> names;
      for (const RecordField& field : type.fields) names.push_back(field.name);
      return "{" + joined(names, ", ") + "}";
    }
  }
  return "";
}

std::string limits_text(const ValueType& type, const Limits& limits) {
  std::string text = size_text(limits);
  if (!text.empty()) text += text.ends_with(" 1") || text == "1" ? " value" : " values";
  const std::string bounds = is_numeric(type) ? bounds_text(limits) : "";
  if (!text.empty() && !bounds.empty()) text += ", ";
  return text + bounds;
}

std::string expectation_text(const ValueType& type, const Limits& limits) {
  const auto with_bounds = [&](const std::string& text) {
    const std::string bounds = bounds_text(limits);
    return bounds.empty() ? text : text + " " + bounds;
  };
  switch (type.kind) {
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return with_bounds("an integer");
    case Kind::number:
      return with_bounds("a number");
    case Kind::text:
      return "text";
    case Kind::path:
      return "a path";
    case Kind::word:
      return "one of " + joined(type.words, ", ");
    case Kind::nullable:
      return expectation_text(type.inner.front(), limits) + " or null";
    case Kind::automatic:
      return "\"auto\" or " + expectation_text(type.inner.front(), limits);
    case Kind::list:
      return list_expectation(type, limits);
    case Kind::map:
      return "a " + type_text(type);
    case Kind::choice:
      return alternatives(type, limits);
    case Kind::record:
      return "an object " + type_text(type);
  }
  return "";
}

bool is_boolean(const ValueType& type) {
  if (type.kind == Kind::nullable || type.kind == Kind::automatic) return is_boolean(type.inner.front());
  return type.kind == Kind::boolean;
}

std::string shown(const Json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return fixed(value.get<double>(), 0);
  std::string text = value.is_string() ? quoted(value.get_ref<const std::string&>())
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kLongestShown) return text;
  std::size_t cut = kLongestShown;
  while (cut > 0 && first_invalid_utf8(std::string_view(text).substr(0, cut))) --cut;
  return text.substr(0, cut) + "…";
}

bool is_exactly(const ValueType& type, const Json& value) {
  switch (type.kind) {
    case Kind::boolean:
      return value.is_boolean();
    case Kind::integer:
      return value.is_number_integer();
    case Kind::number:
      return value.is_number_float();
    case Kind::text:
    case Kind::path:
      return value.is_string();
    case Kind::word:
      return value.is_string() && std::ranges::count(type.words, value.get_ref<const std::string&>()) > 0;
    case Kind::nullable:
      return value.is_null() || is_exactly(type.inner.front(), value);
    case Kind::automatic:
      return value == "auto" || is_exactly(type.inner.front(), value);
    case Kind::list:
    case Kind::map:
      return value.type() == (type.kind == Kind::list ? Json::value_t::array : Json::value_t::object) &&
             std::all_of(value.begin(), value.end(), [&](const Json& item) { return is_exactly(type.inner.front(), item); });
    case Kind::choice:
      return std::ranges::any_of(type.inner, [&](const ValueType& inner) { return is_exactly(inner, value); });
    case Kind::record:
      return value.is_object() && std::ranges::all_of(type.fields, [&](const RecordField& field) {
               const auto found = value.find(field.name);
               return found != value.end() && is_exactly(field.type, *found);
             });
  }
  return false;
}

}  // namespace millrace::config
