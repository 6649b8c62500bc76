// The type of a config value at run time, and the only check of a value against its type.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"

namespace millrace::config {

// Legal numbers, and the legal size of a list.
struct Limits {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_open = false;
  bool maximum_open = false;
  std::int64_t least_size = 0;
  std::int64_t greatest_size = std::numeric_limits<std::int64_t>::max();
};

// Returns the legal sizes as text: "2", "at least 1", "at most 4" or "1 to 4"; "" if any size is legal.
[[nodiscard]] std::string size_text(const Limits& limits);

struct RecordField;

struct ValueType {
  enum class Kind : std::uint8_t { boolean, integer, number, text, path, word, nullable, automatic, list, map, choice, record };
  Kind kind = Kind::text;
  std::int64_t lowest = 0;              // least value of an integer
  std::uint64_t highest = 0;            // greatest value of an integer
  double largest = 0;                   // largest magnitude of a number
  std::vector<std::string> words = {};  // legal words of an enum
  std::vector<ValueType> inner = {};    // for a choice: its alternatives; for other types: the inner type, if any
  std::vector<RecordField> fields;      // the fields of a record
};

struct RecordField {
  std::string name;
  ValueType type;
  Limits limits;
  Json default_value;
  bool required = false;
};

// "integer", "adamw|adam|sgd", "auto|integer", "list of numbers", ...
[[nodiscard]] std::string type_text(const ValueType& type);
// "> 0", ">= 0 and < 1", "2 values"; empty without limits.
[[nodiscard]] std::string limits_text(const ValueType& type, const Limits& limits);
// Returns the text with which a message says what is expected: "an integer >= 1", "one of adamw, adam, sgd", "\"auto\" or a
// number > 0", ...
[[nodiscard]] std::string expectation_text(const ValueType& type, const Limits& limits);
// Returns true if a flag of this type may be given without a value.
[[nodiscard]] bool is_boolean(const ValueType& type);

// The canonical form of `value`: integers as integers, numbers as doubles, enums as their word, lists and maps element by
// element. With `scalar_text`, strings are parsed by type. On failure returns nullopt and adds a problem (what and next) that
// calls the value `path`.
[[nodiscard]] std::optional<Json> canonical_value(const ValueType& type, const Limits& limits, const Json& value,
                                                  const std::string& path, bool scalar_text, std::vector<Problem>& problems);

// Returns the text of `value` for a message: compact JSON, cut if it is long.
[[nodiscard]] std::string shown(const Json& value);
// Turns a string from a flag, a variable or a YAML scalar into the JSON value that it looks like: a number, true, ... Any other
// string becomes a JSON text.
[[nodiscard]] Json guessed(const std::string& text);

// Returns true if canonical JSON `value` has this type without conversion (3 is only an integer, 3.0 is only a number).
[[nodiscard]] bool is_exactly(const ValueType& type, const Json& value);

}  // namespace millrace::config
