// Looks, before training, for implausible stimuli, units and behavior in a run's sessions. Each kind of finding gets a line for
// the user.
#pragma once

#include <string>
#include <vector>

#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

// Looks at frames that are spread over each file, as many as can be read in a short time, and at all counts and behavior.
// Returns a line for each of these: a stimulus that is the same frame throughout, or for a quarter of the recording; grey levels
// of at most 1; units of a session with equal counts; behavior that varies 30 times more or less than in the first session; a
// session of another rate than the first. Frames that can't be read are skipped.
[[nodiscard]] std::vector<std::string> look_at_sessions(const Sessions& sessions);

}  // namespace millrace::recipes::neural_response
