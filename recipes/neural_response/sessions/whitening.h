// Whitening of a movie over its frequencies in time, height and width.
#pragma once

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// Replaces series (rows frames of plane.height by plane.width) by its inverse Fourier transform after multiplying each frequency
// by f exp(-(f / f_0)^n), f = sqrt(f_t^2 + f_h^2 + f_w^2) in cycles per sample. Needs the movie's bytes a second time.
void whiten(Series& series, Plane plane, const op::FftWhitening& options);

}  // namespace millrace::recipes::neural_response
