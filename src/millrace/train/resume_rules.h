// What may differ when a run goes on.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/config/schema.h"

namespace millrace {

// Keys whose value may differ on resume: they change how long or how loudly a run goes on, never its bits. `recipe_keys` are the
// recipe's own ones; one that ends with a dot stands for a whole section.
[[nodiscard]] bool may_change_on_resume(const std::string& path, std::span<const std::string> recipe_keys);

// Differences between the config a snapshot was made with and the present one that are not allowed, as problems.
[[nodiscard]] std::vector<Problem> forbidden_changes(const Json& saved, const config::Resolved& now,
                                                     std::span<const std::string> recipe_keys = {});

}  // namespace millrace
