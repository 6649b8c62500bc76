// Words of other trainers that every recipe takes, in files and as flags.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"

namespace millrace {

// Whether a value asks for nothing: false, 0, null, "", "no", "none".
[[nodiscard]] bool asks_for_nothing(const Json& value);
// Whether it is true, or the text "true", as a flag has it.
[[nodiscard]] bool is_true(const Json& value);

// A word that is accepted and changes nothing. The run that is given it says the reason once, unless its value asks for nothing.
[[nodiscard]] config::Alias accepted_word(const std::string& name, const std::string& reason);
// The same for a word whose value is a text: said whatever the text is.
[[nodiscard]] config::Alias accepted_text(const std::string& name, const std::string& reason);

// Other names of the keys that all recipes share, and words that are accepted.
[[nodiscard]] std::vector<config::Alias> shared_words();

}  // namespace millrace
