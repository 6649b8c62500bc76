// Checks before any of a model is made whether it fits into memory.
#pragma once

#include <string>

namespace millrace {

// ConfigError if `bytes` are more than this machine has free. `parameters` are included in `bytes`; `keys` name the config keys
// that set the model's size. Both numbers are doubles, which no sizes in a config can overflow.
void check_model_size(double parameters, double bytes, const std::string& keys);

}  // namespace millrace
