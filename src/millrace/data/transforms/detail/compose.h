// Helpers shared by the sources of compose.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

[[noreturn]] inline void refuse_composing(std::string what, std::string where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = std::move(where), .next = std::move(next)});
}

// Returns `source`. Throws ConfigError if `source` is null.
inline std::shared_ptr<const Source> required(std::shared_ptr<const Source> source, const std::string& caller) {
  if (!source) refuse_composing(caller + " was given no source", caller, "give it a source, not a null pointer");
  return source;
}

// Checks the fields that a function writes. Throws ConfigError if a name occurs twice or a size is negative. The message begins
// with `caller` and has `where`.
inline void check_fields(std::span<const Field> fields, const std::string& caller, const std::string& where) {
  for (const Field& field : fields) {
    const auto same = [&field](const Field& other) { return other.name == field.name; };
    if (std::count_if(fields.begin(), fields.end(), same) > 1)
      refuse_composing(caller + " makes field " + quoted(field.name) + " twice", where, "name each field once");
    if (!element_count(field.shape)) {
      refuse_composing(caller + " makes field " + quoted(field.name) + " of shape " + to_text(field.shape), where,
                       "give the shape of one sample, with sizes of 0 or more");
    }
  }
}

// Returns a text such as "x f64[2], row i64[]".
inline std::string text_of(std::span<const Field> fields) {
  return joined(fields, ", ",
                [](const Field& field) { return field.name + ' ' + std::string(name_of(field.dtype)) + to_text(field.shape); });
}

// Translates `indices` to indices of the inner source and passes these to `use` in blocks, from a buffer of fixed size. For
// will_need(), which must not allocate or throw.
template <class Number, class Use>
void in_blocks(std::span<const std::int64_t> indices, Number number, Use use) {
  std::array<std::int64_t, 64> inside{};
  for (std::size_t begin = 0; begin < indices.size(); begin += inside.size()) {
    const std::size_t count = std::min(inside.size(), indices.size() - begin);
    for (std::size_t i = 0; i < count; ++i) inside[i] = number(indices[begin + i]);
    use(std::span<const std::int64_t>(inside.data(), count), begin);
  }
}

}  // namespace millrace::data::detail
