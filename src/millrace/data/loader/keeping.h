// Checks what a cache relies on, before a batch is read.
#pragma once

#include <span>
#include <string>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// Reads one sample of a source with Keeps::rows, or asks for the size of one part of a source with Keeps::parts. ConfigError if
// the former draws random numbers or the latter's part has no bytes. A sample that can't be read is not checked. `name` is the
// data set's, "" if there is only one.
void check_keeping(const Source& source, const std::string& name);

// Why a cache keeps nothing of these data sets, of which none is cacheable: for the plan.
[[nodiscard]] std::string reason_to_keep_nothing(std::span<const Dataset> datasets);

// Throws a ConfigError: read() drew random numbers, though its source says Keeps::rows.
[[noreturn]] void refuse_drawn_rows(const std::string& name);

// Throws a ConfigError: the part has no bytes, though its source says Keeps::parts.
[[noreturn]] void refuse_empty_part(std::int64_t part, const std::string& name);

}  // namespace millrace::data::detail
