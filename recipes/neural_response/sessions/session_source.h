// The samples of a session: the frames of the window that ends with a bin, and the counts of the units in that bin.
#pragma once

#include <memory>

#include "millrace/data/loader/source.h"
#include "recipes/neural_response/sessions/session.h"

namespace millrace::recipes::neural_response {

// The fields, in this order:
//   stim      (1, lags, height, width): u8 grey levels as they are stored, which the model sees as (x - 127) / 255; with
//             StimulusFormat fp32 or bf16, and for a stimulus without pixelnorm or with other transforms, f32 or bf16 as the
//             model sees them
//   robs      f32 (units): the counts
//   dfs       f32 (units): 1 if the unit counts in this bin, else 0
//   behavior  f32 (behavior_dim); left out if behavior_dim is 0
// Sample i is the bin session->samples(split)[i]. Frames are read directly into the batch. Keeps::parts are blocks of downsampled
// frames.
[[nodiscard]] std::shared_ptr<const data::Source> session_source(std::shared_ptr<const Session> session, Split split,
                                                                 StimulusFormat format, LagOrder order);

}  // namespace millrace::recipes::neural_response
