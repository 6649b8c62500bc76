// Option names of other trainers that every recipe accepts, in config files and as flags.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace {

// True for values that switch an option off: false, 0, null, "", "no", "none".
[[nodiscard]] bool asks_for_nothing(const Json& value);
// True if the value is true, or the text "true", which is what a flag passes.
[[nodiscard]] bool is_true(const Json& value);

// An option that is accepted and has no effect. A run that gets it logs `reason` once, unless asks_for_nothing() holds for the
// value.
[[nodiscard]] config::Alias accepted_word(const std::string& name, const std::string& reason);
// Like accepted_word(), for an option with a text value: the reason is logged for every text.
[[nodiscard]] config::Alias accepted_text(const std::string& name, const std::string& reason);

// Other trainers' names for the keys that all recipes share, and options that are accepted without effect.
[[nodiscard]] std::vector<config::Alias> shared_words();

}  // namespace millrace
