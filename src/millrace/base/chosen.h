// A chosen value and the reason for the choice.
#pragma once

#include <string>

namespace millrace {

template <class T>
struct Chosen {
  T value{};
  std::string reason;  // one line for the plan; "" if there is nothing to say
};

}  // namespace millrace
