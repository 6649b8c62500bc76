// What LibTorch says when it refuses an operation, in words that help an author.
#pragma once

#include <string>

#include "millrace/base/error.h"

namespace millrace {

// `text`: the first line of LibTorch's message. What: that line without what speaks of Python, of its developers and of other
// backends. Where: empty, but for a refusal that a config key decides. Next: what mends refusals of that kind.
[[nodiscard]] Message refusal_of(std::string text);

}  // namespace millrace
