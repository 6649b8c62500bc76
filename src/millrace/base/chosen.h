// A value that was chosen, with the reason.
#pragma once

#include <string>

namespace millrace {

template <class T>
struct Chosen {
  T value{};
  std::string reason;  // one line for the plan; "" if there is nothing to say
};

}  // namespace millrace
