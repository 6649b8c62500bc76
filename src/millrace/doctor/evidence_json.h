// Converts evidence to and from JSON for other programs. The package headrace measures a training script and passes its
// evidence to the rules in C++.
#pragma once

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::doctor {

// An object with the names of Evidence's members, nested in the same way; `times.seconds` is an object with the name of each
// phase. Optional values without a value are left out. Numbers that are not finite become the texts "nan", "inf" and "-inf".
[[nodiscard]] Json to_json(const Evidence& evidence);

// Reads the result of to_json(). Members may be left out and then have their defaults; a gradient norm that is left out is NaN.
// Throws ConfigError for JSON of another form: the error names the place, and for an unknown name the most similar known name.
[[nodiscard]] Evidence evidence_from(const Json& json);

}  // namespace millrace::doctor
