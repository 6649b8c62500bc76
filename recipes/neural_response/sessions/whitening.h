// Whitens a movie over its frequencies in time, height and width.
#pragma once

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// Multiplies each frequency of the movie `series` (rows frames of plane.height by plane.width) by f exp(-(f / f_0)^n), where f
// = sqrt(f_t^2 + f_h^2 + f_w^2) in cycles per sample, and replaces the movie by the result. Needs further memory of the movie's
// size.
void whiten(Series& series, Plane plane, const op::FftWhitening& options);

}  // namespace millrace::recipes::neural_response
