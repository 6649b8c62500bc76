// What a cache relies on, asked of a source before a batch is read.
#pragma once

#include <string>

#include "millrace/data/loader/source.h"

namespace millrace::data::detail {

// Reads a sample of a source that says Keeps::rows and asks for the size of a part of one that says Keeps::parts. ConfigError
// when the former draws random numbers, or the part of the latter has no bytes. A sample that can't be read says nothing.
// `name` is the data set's, "" when there is only one.
void check_keeping(const Source& source, const std::string& name);

// ConfigError: read() drew random numbers, though its source says Keeps::rows.
[[noreturn]] void refuse_drawn_rows(const std::string& name);

// ConfigError: the part has no bytes, though its source says Keeps::parts.
[[noreturn]] void refuse_empty_part(std::int64_t part, const std::string& name);

}  // namespace millrace::data::detail
