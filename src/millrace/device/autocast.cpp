#include "millrace/device/autocast.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace millrace::device {
namespace {

void set_tf32(bool matmul, bool convolution) {
  at::globalContext().setAllowTF32CuBLAS(matmul);
  at::globalContext().setAllowTF32CuDNN(convolution);
}

}  // namespace

Autocast::Autocast(c10::DeviceType device, std::optional<c10::ScalarType> dtype) : active_(dtype.has_value()), device_(device) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_cached_ = at::autocast::is_autocast_cache_enabled();
  was_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_dtype(device_, *dtype);
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_cache_enabled(was_cached_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

NoAutocast::NoAutocast(c10::DeviceType device) : device_(device), was_enabled_(at::autocast::is_autocast_enabled(device)) {
  at::autocast::set_autocast_enabled(device_, false);
}

NoAutocast::~NoAutocast() { at::autocast::set_autocast_enabled(device_, was_enabled_); }

void allow_tf32(bool allowed) { set_tf32(allowed, allowed); }

Tf32::Tf32(bool allowed)
    : was_matmul_(at::globalContext().allowTF32CuBLAS()), was_convolution_(at::globalContext().allowTF32CuDNN()) {
  allow_tf32(allowed);
}

Tf32::~Tf32() { set_tf32(was_matmul_, was_convolution_); }

}  // namespace millrace::device
