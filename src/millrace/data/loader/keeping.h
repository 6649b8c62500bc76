// Checks the promises of a source on which a cache relies (see Keeps), before the first batch is read.
#pragma once

#include <span>
#include <string>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// Reads a sample of a source with Keeps::rows, or asks a source with Keeps::parts for the size of a part. Throws ConfigError if
// that read draws random numbers, or if that part has no bytes. A sample that can't be read is not checked. `name`: the data
// set's name, "" if there is only one data set.
void check_keeping(const Source& source, const std::string& name);

// Returns the reason why a cache keeps nothing of these data sets, for the plan. Call it only if no data set can be cached.
[[nodiscard]] std::string reason_to_keep_nothing(std::span<const Dataset> datasets);

// Throws a ConfigError which says that read() drew random numbers, although the source promises Keeps::rows.
[[noreturn]] void refuse_drawn_rows(const std::string& name);

// Throws a ConfigError which says that the part has no bytes, although the source promises Keeps::parts.
[[noreturn]] void refuse_empty_part(std::int64_t part, const std::string& name);

}  // namespace millrace::data::detail
