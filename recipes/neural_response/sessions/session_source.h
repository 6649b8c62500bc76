// Samples of one session: the window of frames up to a bin, and the units' counts in it.
#pragma once

#include <memory>

#include "millrace/data/loader/source.h"
#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

// Fields, in this order:
//   stim      (1, lags, height, width): u8 grey levels as they are stored, which the model sees as (x - 127) / 255; with
//             StimulusFormat fp32 or bf16, and for a stimulus without pixelnorm or with other transforms, f32 or bf16 as the
//             model sees them
//   robs      f32 (units)
//   dfs       f32 (units), 1 or 0
//   behavior  f32 (behavior_dim), absent when that is 0
// Sample i is bin session->samples(split)[i]. Frames are read in place; Keeps::parts are blocks of downsampled frames.
[[nodiscard]] std::shared_ptr<const data::Source> session_source(std::shared_ptr<const Session> session, Split split,
                                                                 StimulusFormat format, LagOrder order);

}  // namespace millrace::recipes::neural_response
