// What was chosen, and why.
#pragma once

#include <string>

namespace millrace {

template <class T>
struct Chosen {
  T value{};
  std::string reason;  // one line for the plan; "" where there is nothing to say
};

}  // namespace millrace
