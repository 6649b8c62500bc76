// Words of other trainers that every recipe accepts, in files and as flags.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace {

// True for values that ask for nothing: false, 0, null, "", "no", "none".
[[nodiscard]] bool asks_for_nothing(const Json& value);
// Whether a value is true, or the text "true", as flags pass it.
[[nodiscard]] bool is_true(const Json& value);

// A word that is accepted and changes nothing. A run that gets it logs the reason once, unless the word's value asks for nothing.
[[nodiscard]] config::Alias accepted_word(const std::string& name, const std::string& reason);
// The same for a word with a text value: the reason is logged for any text.
[[nodiscard]] config::Alias accepted_text(const std::string& name, const std::string& reason);

// Other names of the keys that all recipes share, and words that are accepted.
[[nodiscard]] std::vector<config::Alias> shared_words();

}  // namespace millrace
