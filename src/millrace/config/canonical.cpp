// Checks a config value against its type and makes its canonical form.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "millrace/base/format.h"
#include "millrace/config/value_type.h"

namespace millrace::config {
namespace {

// Returns the text of a value for a message. A number from a flag or a variable arrives here as a string and is shown without
// quotes.
std::string unquoted(const Json& value) {
  const std::string text = shown(value);
  return value.is_string() && text.size() > 1 && text.ends_with('"') ? text.substr(1, text.size() - 2) : text;
}

using Kind = ValueType::Kind;

constexpr int kDeepest = 32;  // no key needs deeper nesting, and the copy of a deeper value could overflow the stack
constexpr double kMostExact = 9007199254740991;  // a double above this may stand for several integers

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Parses the text of a flag, variable or YAML scalar as JSON. The result is discarded (Json::is_discarded) if the text is not
// JSON or is nested too deeply.
Json json_in(std::string_view text) {
  const auto is_shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDeepest; };
  return Json::parse(trimmed(text), is_shallow, false, true);
}

// Reads a text that is one JSON number; a leading + or . and a bare "nan" are also allowed. Returns null if the text is not a
// number, and infinity on overflow.
Json number_in(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with('+')) return nullptr;
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, whole); error == std::errc{} && at == end) return whole;
  std::uint64_t large = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, large); error == std::errc{} && at == end) return large;
  double number = 0;
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (at != end || error == std::errc::invalid_argument) return nullptr;
  if (error == std::errc::result_out_of_range) {
    const bool is_tiny = text.find("e-") != std::string_view::npos || text.find("E-") != std::string_view::npos;
    return is_tiny ? 0.0 : text.front() == '-' ? -HUGE_VAL : HUGE_VAL;
  }
  return number;
}

std::optional<bool> boolean_in(std::string_view text) {
  std::string word(trimmed(text));
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

// True for a range such as "6-8". Guides recommend values in this form.
bool is_range(std::string_view text) {
  text = trimmed(text);
  const std::size_t dash = text.find('-', 1);
  if (text.empty() || dash == std::string_view::npos) return false;
  return number_in(text.substr(0, dash)).is_number() && number_in(text.substr(dash + 1)).is_number() && text[dash - 1] != 'e';
}

class Checker {
 public:
  Checker(const Limits& limits, bool scalar_text, std::vector<Problem>& problems)
      : limits_(limits), scalar_text_(scalar_text), problems_(problems) {}

  std::optional<Json> check(const ValueType& type, const Json& value, const std::string& path) {
    switch (type.kind) {
      case Kind::boolean:
        return boolean(type, value, path);
      case Kind::integer:
        return integer(type, value, path);
      case Kind::number:
        return number(type, value, path);
      case Kind::text:
      case Kind::path:
        return text(type, value, path);
      case Kind::word:
        return word(type, value, path);
      case Kind::nullable:
        return nullable(type, value, path);
      case Kind::automatic:
        return automatic(type, value, path);
      case Kind::list:
        return list(type, value, path);
      case Kind::map:
        return map(type, value, path);
      case Kind::choice:
        return choice(type, value, path);
      case Kind::record:
        return record(type, value, path);
    }
    return std::nullopt;
  }

 private:
  std::optional<Json> problem(std::string what, std::string next) {
    problems_.push_back({.what = std::move(what), .where = "", .next = std::move(next)});
    return std::nullopt;
  }

  std::optional<Json> wrong(const ValueType& type, const Json& value, const std::string& path, std::string next = "") {
    const std::string expected = expectation_text(type, limits_);
    if (next.empty()) next = "write " + expected;
    return problem(path + " is " + shown(value) + ", expected " + expected, std::move(next));
  }

  // Returns the string in `value` if strings must be parsed, else null.
  const std::string* source_text(const Json& value) const {
    return scalar_text_ && value.is_string() ? value.get_ptr<const std::string*>() : nullptr;
  }

  std::optional<Json> boolean(const ValueType& type, const Json& value, const std::string& path) {
    if (value.is_boolean()) return value;
    if (value == Json(0) || value == Json(1)) return Json(value == Json(1));  // 0 and 1 are booleans, as in Python
    if (const std::string* source = source_text(value)) {
      if (const auto parsed = boolean_in(*source)) return Json(*parsed);
    }
    const bool is_quoted = value.is_string() && (value == "true" || value == "false");
    return wrong(type, value, path, is_quoted ? "write " + value.get<std::string>() + " without quotes" : "");
  }

  std::optional<Json> not_a_number(const ValueType& type, const Json& value, const std::string& path) {
    if (!value.is_string()) return wrong(type, value, path);
    const auto& source = value.get_ref<const std::string&>();
    if (is_range(source)) {
      const std::string first(trimmed(source.substr(0, source.find('-', 1))));
      return wrong(type, value, path, std::string(trimmed(source)) + " is a range: choose one number in it, such as " + first);
    }
    if (number_in(source).is_number()) return wrong(type, value, path, "write it without quotes");
    return wrong(type, value, path);
  }

  bool is_within_limits(double value) const {
    const bool above = limits_.minimum_open ? value > limits_.minimum : value >= limits_.minimum;
    const bool below = limits_.maximum_open ? value < limits_.maximum : value <= limits_.maximum;
    return above && below;
  }

  std::optional<Json> out_of_range(const ValueType& type, const Json& value, const std::string& path) {
    const std::string range = limits_text(type, {.minimum = limits_.minimum,
                                                 .maximum = limits_.maximum,
                                                 .minimum_open = limits_.minimum_open,
                                                 .maximum_open = limits_.maximum_open});
    return problem(path + " is " + unquoted(value) + ", out of range", "choose a value " + range);
  }

  std::optional<Json> integer(const ValueType& type, const Json& value, const std::string& path) {
    const std::string* source = source_text(value);
    Json parsed = source != nullptr ? number_in(*source) : value;
    if (!parsed.is_number()) return not_a_number(type, value, path);
    if (parsed.is_number_float()) {  // numbers such as 1e3 and 5.0 are integers too
      const auto real = parsed.get<double>();
      if (std::isnan(real) || (std::isfinite(real) && real != std::floor(real))) return wrong(type, value, path);
      if (std::abs(real) > kMostExact) return too_large(type, value, path, static_cast<std::uint64_t>(kMostExact));
      parsed = static_cast<std::int64_t>(real);
    }
    const bool is_negative = !parsed.is_number_unsigned() && parsed.get<std::int64_t>() < 0;
    if (is_negative ? parsed.get<std::int64_t>() < type.lowest : parsed.get<std::uint64_t>() > type.highest) {
      return too_large(type, value, path, type.highest);
    }
    if (!is_within_limits(parsed.get<double>())) return out_of_range(type, value, path);
    return parsed;
  }

  // Reports an integer outside the range. The message names both bounds, because ">= 0" alone does not help a user who wrote
  // 1e30.
  std::optional<Json> too_large(const ValueType& type, const Json& value, const std::string& path, std::uint64_t highest) {
    highest = std::min(highest, type.highest);
    if (limits_.maximum < static_cast<double>(highest)) return out_of_range(type, value, path);
    std::int64_t lowest = type.lowest;
    if (std::isfinite(limits_.minimum)) {
      lowest = std::max(lowest, static_cast<std::int64_t>(std::floor(limits_.minimum)) + (limits_.minimum_open ? 1 : 0));
    }
    return problem(path + " is " + unquoted(value) + ", out of range",
                   "choose an integer from " + std::to_string(lowest) + " to " + std::to_string(highest));
  }

  std::optional<Json> number(const ValueType& type, const Json& value, const std::string& path) {
    const std::string* source = source_text(value);
    const Json parsed = source != nullptr ? number_in(*source) : value;
    if (!parsed.is_number()) return not_a_number(type, value, path);
    const auto real = parsed.get<double>();
    if (std::isnan(real)) return wrong(type, value, path);
    if (std::abs(real) > type.largest)
      return problem(path + " is " + unquoted(value) + ", too large for a number", "choose a smaller number");
    if (!is_within_limits(real)) return out_of_range(type, value, path);
    return Json(real);
  }

  std::optional<Json> text(const ValueType& type, const Json& value, const std::string& path) {
    if (value.is_null()) return Json("");  // from `resume = null` in TOML of the original programs, or `key:` in YAML
    if (value.is_string() && value.get_ref<const std::string&>().find('\0') != std::string::npos) {
      return problem(path + " holds a NUL byte", "remove it");
    }
    if (value.is_string()) return value;
    return wrong(type, value, path, value.is_primitive() ? "write it in quotes" : "");
  }

  std::optional<Json> word(const ValueType& type, const Json& value, const std::string& path) {
    if (!value.is_string()) return wrong(type, value, path);
    const std::string given(trimmed(value.get_ref<const std::string&>()));
    if (std::ranges::count(type.words, given) > 0) return Json(given);
    const std::string suggestion = nearest(given, type.words.data(), type.words.data() + type.words.size());
    return wrong(type, value, path, suggestion.empty() ? "" : "did you mean \"" + suggestion + "\"?");
  }

  std::optional<Json> nullable(const ValueType& type, const Json& value, const std::string& path) {
    if (value.is_null()) return value;
    if (const std::string* source = source_text(value); source != nullptr && (*source == "null" || *source == "none")) {
      return Json(nullptr);
    }
    return inner_or_wrong(type, value, path);
  }

  std::optional<Json> automatic(const ValueType& type, const Json& value, const std::string& path) {
    if (value.is_string() && trimmed(value.get_ref<const std::string&>()) == "auto") return Json("auto");
    return inner_or_wrong(type, value, path);
  }

  // Checks `value` against the inner type. If a scalar doesn't fit, the message names the whole type, including "auto" or null.
  std::optional<Json> inner_or_wrong(const ValueType& type, const Json& value, const std::string& path) {
    const std::size_t before = problems_.size();
    std::optional<Json> result = check(type.inner.front(), value, path);
    if (result || problems_.size() != before + 1 || !value.is_primitive()) return result;
    const std::string narrow = ", expected " + expectation_text(type.inner.front(), limits_);
    const std::string wide = expectation_text(type, limits_);
    Problem& last = problems_.back();
    if (last.what.ends_with(narrow)) {
      last.what.replace(last.what.size() - narrow.size(), narrow.size(), ", expected " + wide);
      if (last.next == "write " + narrow.substr(11)) last.next = "write " + wide;
    }
    return result;
  }

  std::optional<Json> list(const ValueType& type, const Json& value, const std::string& path) {
    Json items = value;
    if (const std::string* source = source_text(value)) items = split(*source);
    if (!items.is_array()) {
      return wrong(type, value, path,
                   items.is_primitive() && !items.is_null() ? "write it in brackets: [" + shown(value) + "]" : "");
    }
    const auto count = static_cast<std::int64_t>(items.size());
    if ((count < limits_.least_size || count > limits_.greatest_size) && !inside_list_) {
      const std::string size = std::to_string(count) + (count == 1 ? " value" : " values");
      return problem(path + " has " + size + ", expected " + size_text(limits_), "write " + expectation_text(type, limits_));
    }
    const bool was_inside = std::exchange(inside_list_, true);
    bool is_valid = true;
    for (std::size_t i = 0; i < items.size(); ++i) {
      std::optional<Json> item = check(type.inner.front(), items[i], path + "[" + std::to_string(i) + "]");
      is_valid = is_valid && item.has_value();
      if (item) items[i] = *std::move(item);
    }
    inside_list_ = was_inside;
    return is_valid ? std::optional(std::move(items)) : std::nullopt;
  }

  // Splits the two forms that flags and variables use for a list: "a, b" and JSON.
  static Json split(const std::string& source) {
    const std::string_view whole = trimmed(source);
    if (whole.starts_with('[')) {
      Json items = json_in(whole);
      if (items.is_array()) return items;
    }
    Json items = Json::array();
    if (whole.empty()) return items;
    for (std::size_t begin = 0; begin <= whole.size();) {
      const std::size_t end = std::min(whole.find(',', begin), whole.size());
      items.push_back(std::string(trimmed(whole.substr(begin, end - begin))));
      begin = end + 1;
    }
    return items;
  }

  std::optional<Json> map(const ValueType& type, const Json& value, const std::string& path) {
    Json items = value;
    if (const std::string* source = source_text(value)) items = json_in(*source);
    if (!items.is_object()) return wrong(type, value, path, "write an object: {\"name\": value}");
    bool is_valid = true;
    for (auto& [key, item] : items.items()) {
      std::optional<Json> checked = check(type.inner.front(), item, std::string(path).append(".").append(key));
      is_valid = is_valid && checked.has_value();
      if (checked) item = *std::move(checked);
    }
    return is_valid ? std::optional(std::move(items)) : std::nullopt;
  }

  std::optional<Json> choice(const ValueType& type, const Json& value, const std::string& path) {
    for (const ValueType& inner : type.inner) {
      if (is_exactly(inner, value) && !(scalar_text_ && value.is_string())) return check(inner, value, path);
    }
    for (const ValueType& inner : type.inner) {
      std::vector<Problem> ignored;
      if (std::optional<Json> result = Checker(limits_, scalar_text_, ignored).check(inner, value, path)) return result;
    }
    return wrong(type, value, path);
  }

  std::optional<Json> record(const ValueType& type, const Json& value, const std::string& path) {
    Json items = value;
    if (const std::string* source = source_text(value)) items = json_in(*source);
    if (!items.is_object()) return wrong(type, value, path);
    const std::size_t before = problems_.size();
    Json result = Json::object();
    for (const RecordField& field : type.fields) {
      const std::string name = path + "." + field.name;
      const auto found = items.find(field.name);
      if (found != items.end()) {
        std::optional<Json> checked = canonical_value(field.type, field.limits, *found, name, scalar_text_, problems_);
        result[field.name] = checked ? *std::move(checked) : field.default_value;
      } else if (field.required) {
        problem(name + " is required and not set", "add it");
      } else {
        result[field.name] = field.default_value;
      }
    }
    for (const auto& [key, item] : items.items()) unknown_field(type, key, path);
    return problems_.size() == before ? std::optional(std::move(result)) : std::nullopt;
  }

  void unknown_field(const ValueType& type, const std::string& key, const std::string& path) {
    std::vector<std::string> names;
    for (const RecordField& field : type.fields) names.push_back(field.name);
    if (std::ranges::count(names, key) > 0) return;
    const std::string suggestion = nearest(key, names.data(), names.data() + names.size());
    problem("unknown key " + quoted(path + "." + key), suggestion.empty()
                                                           ? "remove it; the known names are " + type_text(type)
                                                           : "did you mean " + quoted(path + "." + suggestion) + "?");
  }

  const Limits& limits_;
  bool scalar_text_;
  std::vector<Problem>& problems_;
  bool inside_list_ = false;  // true inside a list; an exact size applies only to the outer list
};

}  // namespace

std::optional<Json> canonical_value(const ValueType& type, const Limits& limits, const Json& value, const std::string& path,
                                    bool scalar_text, std::vector<Problem>& problems) {
  return Checker(limits, scalar_text, problems).check(type, value, path);
}

Json guessed(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (text == "null") return nullptr;
  Json number = number_in(text);
  if (number.is_number() && std::isfinite(number.get<double>())) return number;
  return text;
}

}  // namespace millrace::config
