// Evidence as JSON, for the doctor's guests: the package headrace measures a training script and asks the rules in C++.
#pragma once

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::doctor {

// An object with the names of the members of Evidence, nested as there; `times.seconds` is an object with the name of each phase.
// Optional values that are not there are left out. Numbers that are not finite are the texts "nan", "inf" and "-inf".
[[nodiscard]] Json to_json(const Evidence& evidence);

// Reads what to_json() writes. Members may be left out, then they have their defaults; a gradient norm that is left out is NaN.
// Throws ConfigError for JSON of another form: it names the place, and for an unknown name the nearest one.
[[nodiscard]] Evidence evidence_from(const Json& json);

}  // namespace millrace::doctor
