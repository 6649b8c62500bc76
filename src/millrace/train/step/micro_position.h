// Where a micro-batch stands in its batch, or in its step.
#pragma once

namespace millrace {

struct MicroPosition {
  bool only = false;  // there is no other
  bool last = false;  // none comes after it
};

}  // namespace millrace
