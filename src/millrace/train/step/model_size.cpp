#include "millrace/train/step/model_size.h"

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/device/device.h"

namespace millrace {

void check_model_size(double parameters, double bytes, const std::string& keys) {
  const auto free = static_cast<double>(device::available_memory_bytes());
  if (bytes <= free) return;
  throw ConfigError(Message{"a model of " + significant(parameters, 3) + " parameters takes " + human_bytes(bytes) +
                                " before its first step, but only " + human_bytes(free) + " are free",
                            keys, "choose a smaller model, or free memory"});
}

}  // namespace millrace
