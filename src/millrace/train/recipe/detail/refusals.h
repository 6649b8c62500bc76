// Translates the errors with which LibTorch refuses an operation into messages that help the author of a recipe.
#pragma once

#include <string>

#include "millrace/base/error.h"

namespace millrace {

// Returns a message in three parts, made from `text`, the first line of LibTorch's message. "What": that line without its parts
// about Python, LibTorch's developers and other backends. "Where": the config key that leads to the refusal, if there is such a
// key. "Next": how to mend refusals of that kind.
[[nodiscard]] Message refusal_of(std::string text);

}  // namespace millrace
