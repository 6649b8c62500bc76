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
#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

[[noreturn]] inline void refuse_composing(std::string what, std::string where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = std::move(where), .next = std::move(next)});
}

// Returns `source`. Throws ConfigError if it is null.
inline std::shared_ptr<const Source> required(std::shared_ptr<const Source> source, const std::string& caller) {
  if (!source) refuse_composing(caller + " was given no source", caller, "give it a source, not a null pointer");
  return source;
}

// Calls `use` with the inner numbers of `indices`, a block at a time. It needs no allocation and does not throw, because
// will_need() must not.
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
