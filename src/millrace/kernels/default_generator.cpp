#include "millrace/kernels/default_generator.h"

#include <ATen/Context.h>

#include <mutex>

namespace millrace::kernels {

void seed_default_generator(c10::Device device, std::uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace millrace::kernels
