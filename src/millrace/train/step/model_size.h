// Whether a model can be held at all, asked before any of it is made.
#pragma once

#include <string>

namespace millrace {

// ConfigError when `bytes` are more than what this machine has free: `parameters` are counted in it, `keys` set its size. Both
// are doubles, which no sizes in a config overflow.
void check_model_size(double parameters, double bytes, const std::string& keys);

}  // namespace millrace
