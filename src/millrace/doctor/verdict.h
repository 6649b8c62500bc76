// The doctor's verdict on a stretch of a run, as JSON for programs in other languages.
#pragma once

#include "millrace/base/json.h"
#include "millrace/doctor/evidence.h"

namespace millrace::doctor {

// Returns {"findings": [as to_json(Finding), with "endangers_run": true if its stake is the run], "accounts": [{"phase",
// "seconds", "share"}] of the loop, the largest first, "verdict": one to three sentences for people}.
[[nodiscard]] Json verdict_on(const Evidence& evidence);

}  // namespace millrace::doctor
