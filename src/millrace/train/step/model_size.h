// Checks whether a model fits into memory before any part of it is made.
#pragma once

#include <string>

namespace millrace {

// Throws ConfigError if `bytes` are more than this machine has free. `bytes` include the `parameters`; `keys` names the config
// keys that set the model's size. Both numbers are doubles, so that no size in a config overflows them.
void check_model_size(double parameters, double bytes, const std::string& keys);

}  // namespace millrace
