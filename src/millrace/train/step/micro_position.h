// The position of a micro-batch in its batch or in its step.
#pragma once

namespace millrace {

struct MicroPosition {
  bool only = false;  // it is the only one
  bool last = false;  // it is the last one
};

}  // namespace millrace
