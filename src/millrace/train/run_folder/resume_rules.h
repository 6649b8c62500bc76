// What may differ when a run is resumed: the keys that its config's fields() marks free_on_resume().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace {

// Forbidden differences between the config of a snapshot and the present one, as problems. Two spellings of a path are equal if
// they lead to the same file or folder; relative paths in `saved` start at `folder`, "" = the current one.
[[nodiscard]] std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now, const config::Schema& schema,
                                                     const std::filesystem::path& folder = {});

// Whether two paths of a config are equal, as above.
[[nodiscard]] bool leads_to(const std::string& saved, const std::string& now, const std::filesystem::path& folder);

}  // namespace millrace
