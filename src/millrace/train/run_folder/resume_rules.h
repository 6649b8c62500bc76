// What may differ when a run goes on: what its config's fields() call free_on_resume().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace {

// Differences between the config a snapshot was made with and the present one that are not allowed, as problems. Two spellings of
// a path are alike when they lead to the same file or folder; `folder` is the one that relative paths in `saved` are of, "" = the
// current one.
[[nodiscard]] std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now, const config::Schema& schema,
                                                     const std::filesystem::path& folder = {});

// Whether two paths of a config are the same one, as above.
[[nodiscard]] bool leads_to(const std::string& saved, const std::string& now, const std::filesystem::path& folder);

}  // namespace millrace
