#include "millrace/nn/sent.h"

#include "millrace/base/error.h"
#include "millrace/core/random.h"

namespace millrace::nn {

at::Tensor sent(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  if (RandomScope::is_recorded())
    throw RecipeError(
        {"the loss sends numbers from the host to the device in a recorded step", "Objective::loss",
         "make these numbers in Recipe::prepare, which runs before each step, or keep them in a buffer of the model"});
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace millrace::nn
