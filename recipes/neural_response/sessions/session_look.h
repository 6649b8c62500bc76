// Checks of a run's sessions before training: implausible stimuli, units and behavior get a line each.
#pragma once

#include <string>
#include <vector>

#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

// Checks frames spread over each file, as many as a moment allows, and all counts and behavior. Returns one line for each case: a
// stimulus that is one frame throughout, or for a quarter of the recording; grey levels of at most 1; units of a session with the
// same counts; behavior that varies 30 times more or less than in the first session. Unreadable frames are skipped.
[[nodiscard]] std::vector<std::string> look_at_sessions(const Sessions& sessions);

}  // namespace millrace::recipes::neural_response
