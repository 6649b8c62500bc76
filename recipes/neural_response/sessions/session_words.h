// Describes recordings in words: clocks, units, frames.
#pragma once

#include <map>
#include <string>

#include "millrace/train/recipe/recipe.h"
#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

// A text such as "240 Hz, 0 to 83.3 s, no gap"; "no rate" for a clock that stands still.
[[nodiscard]] std::string clock_text(const ClockSeen& clock);

// A line about all sessions: "clock 240 Hz of /t_bins, 0 to 83.3 s, no gap; read at 120 Hz, frames of 32 x 32, 24 lags".
[[nodiscard]] std::string read_as(const Sessions& sessions);
// The axes and units of the samples' fields, for drawing.
[[nodiscard]] std::map<std::string, FieldWords> fields_of(const Sessions& sessions, const RecipeConfig& recipe);

// A line about a file: "session: 19,800 bins, 12 units, frames of 32 x 32 u8, 41 trials, clock 240 Hz, …". "" for a file without
// /stim and /robs.
[[nodiscard]] std::string session_read_as(const hdf5::File& file);

}  // namespace millrace::recipes::neural_response
