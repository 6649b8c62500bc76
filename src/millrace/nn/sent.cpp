#include "millrace/nn/sent.h"

namespace millrace::nn {

at::Tensor sent(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host;
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace millrace::nn
