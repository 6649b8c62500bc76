// Whitening of a movie in the frequencies of time, height and width.
#pragma once

#include "recipes/neural_response/sessions/transforms.h"

namespace millrace::recipes::neural_response {

// series (rows frames of plane.height by plane.width) becomes its inverse Fourier transform after each frequency was multiplied
// by f exp(-(f / f_0)^n), f = sqrt(f_t^2 + f_h^2 + f_w^2) in cycles per sample. Takes the movie's bytes once more.
void whiten(Series& series, Plane plane, const op::FftWhitening& options);

}  // namespace millrace::recipes::neural_response
