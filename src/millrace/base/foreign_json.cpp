#include "millrace/base/foreign_json.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// Returns true if `text` nests at most kDeepestJson levels deep. Skips brackets inside strings, because a string may hold any
// number of them.
bool is_shallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace

Json parse_shallow(std::string_view text) {
  return is_shallow(text) ? Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false)
                          : Json(Json::value_t::discarded);
}

const Json& json_at(const Json& json, JsonKeys keys) {
  static const Json kNothing;
  const Json* at = &json;
  for (const std::string_view key : keys) {
    if (!at->is_object()) return kNothing;
    const auto found = at->find(key);
    if (found == at->end()) return kNothing;
    at = &*found;
  }
  return *at;
}

std::string text_at(const Json& json, JsonKeys keys) {
  const Json& value = json_at(json, keys);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<double> number_at(const Json& json, JsonKeys keys) {
  const Json& value = json_at(json, keys);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

std::int64_t count_at(const Json& json, JsonKeys keys) {
  constexpr double kMost = 1e15;
  return static_cast<std::int64_t>(std::clamp(number_at(json, keys).value_or(0), 0.0, kMost));
}

}  // namespace millrace
