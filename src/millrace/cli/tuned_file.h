// The config file that `millrace tune` writes.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/doctor/tuner.h"

namespace millrace::cli {

// The file's text as YAML: all config values that are neither defaults nor a preset's, and the values that the search kept, each
// with its gain in a comment. `heading`: comment lines at the top. Throws ConfigError if a kept value is invalid for its key.
[[nodiscard]] std::string tuned_file(const config::Schema& schema, const config::Resolved& config, const doctor::Tuner& tuner,
                                     const std::vector<std::string>& heading);

}  // namespace millrace::cli
