// The config keys that may change when a run is resumed: those that fields() of the config marks as free_on_resume().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace {

// Compares the config of a snapshot with the present config and returns, as problems, the differences that a resume forbids. Two
// different spellings of a path are equal if they lead to the same file or folder. Relative paths in `saved` are relative to
// `folder`, "" = the current folder.
[[nodiscard]] std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now, const config::Schema& schema,
                                                     const std::filesystem::path& folder = {});

// True if two paths of a config lead to the same file or folder, in the sense of forbidden_changes().
[[nodiscard]] bool leads_to(const std::string& saved, const std::string& now, const std::filesystem::path& folder);

}  // namespace millrace
