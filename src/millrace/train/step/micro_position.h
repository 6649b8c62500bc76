// The position of a micro-batch in its batch or in its step.
#pragma once

namespace millrace {

struct MicroPosition {
  bool only = false;  // the micro-batch is the only one
  bool last = false;  // the micro-batch is the last one
};

}  // namespace millrace
