// A toy recipe for the tests of recorded steps: what may change from step to step, and what a recording must not take in.
#pragma once

#include <string>

#include "toys.h"

namespace millrace::standin {

// A regression of 50 rows. toy.with: what the step has, by words; toy.planted: what a recording must refuse, notice or leave.
[[nodiscard]] Entry graph_toy();

}  // namespace millrace::standin
