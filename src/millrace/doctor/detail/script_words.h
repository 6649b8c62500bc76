// Expresses the remedies of findings in the terms of a training script that is not Millrace's.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/doctor/evidence.h"
#include "millrace/doctor/finding.h"

namespace millrace::doctor::detail {

// True if the rule may be applied to a script, because its remedy can be expressed in a script's terms.
[[nodiscard]] bool is_for_scripts(std::string_view rule) noexcept;

// Keys of kDialectRows (script_words.cpp), with their values. Keys with the same `call` in the script's dialect become one call.
using ScriptSettings = std::vector<std::pair<std::string_view, Json>>;
[[nodiscard]] Finding::Change change_of(const Script& script, const ScriptSettings& settings);
[[nodiscard]] std::string remedy_of(const Finding::Change& change, const std::string& where);  // "try ... in train.py:31"

// Turns a finding of a general rule into a finding about a script: a config key becomes a change, and the remedy uses the
// script's terms.
void put_into_words(Finding& finding, const Script& script);

}  // namespace millrace::doctor::detail
