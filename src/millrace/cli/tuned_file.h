// The config file that `millrace tune` writes.
#pragma once

#include <string>
#include <vector>

#include "millrace/config/schema.h"
#include "millrace/doctor/tuner.h"

namespace millrace::cli {

// YAML: all values of the config that are neither defaults nor a preset's, and those that the search keeps, these with what they
// gained as a comment. `heading`: comment lines above. ConfigError when a kept value is not one of its key's.
[[nodiscard]] std::string tuned_file(const config::Schema& schema, const config::Resolved& config, const doctor::Tuner& tuner,
                                     const std::vector<std::string>& heading);

}  // namespace millrace::cli
