// Translates the errors with which LibTorch refuses an operation into messages that help the author of a recipe.
#pragma once

#include <string>

#include "millrace/base/error.h"

namespace millrace {

// `text` is the first line of LibTorch's message. Returns a message in three parts. "What": that line without its parts about
// Python, LibTorch's developers and other backends. "Where": a config key if it decides the refusal, otherwise empty. "Next": how
// to mend refusals of that kind.
[[nodiscard]] Message refusal_of(std::string text);

}  // namespace millrace
