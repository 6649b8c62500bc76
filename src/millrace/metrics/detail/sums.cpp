#include "millrace/metrics/detail/sums.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/base/format.h"
#include "millrace/core/scalar_type.h"
#include "millrace/device/device.h"

namespace millrace::metrics::detail {

// Double if the device has it, because in float a long sum loses its small summands.
at::Tensor zero_on(const at::Device& device) {
  const auto dtype = device::nature_of(device).has_double_sums ? at::kDouble : at::kFloat;
  return at::scalar_tensor(0.0, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor integers_on(const at::Device& device, at::IntArrayRef sizes) {
  return at::zeros(sizes, at::TensorOptions().dtype(at::kLong).device(device));
}

void move_to(at::Tensor& total, const at::Device& device) {
  if (total.device() == device || device.is_cpu()) return;
  const auto type = total.is_floating_point() ? zero_on(device).scalar_type() : total.scalar_type();
  total = total.to(device, type, /*non_blocking=*/true);
}

std::string type_text(const at::Tensor& value) {
  const auto dtype = dtype_of(value.scalar_type());
  return dtype ? std::string(name_of(*dtype)) : std::string(c10::toString(value.scalar_type()));
}

std::string shape_text(const at::Tensor& value) {
  return value.defined() ? to_text(Shape(value.sizes().begin(), value.sizes().end())) : "undefined";
}

void check_shapes(std::string_view metric, const char* first, const at::Tensor& x, const char* second, const at::Tensor& y) {
  if (x.defined() && y.defined() && x.sizes() == y.sizes()) return;
  throw DataError({std::string(first) + " has shape " + shape_text(x) + ", but " + second + " has shape " + shape_text(y),
                   "metric " + quoted(metric),
                   "give both tensors the same shape in prepare() or where they are made, e.g. with squeeze(1) or unsqueeze(1)"});
}

void refuse(std::string_view metric, const std::string& what, const std::string& next) {
  throw RecipeError({what, "metric " + quoted(metric), next});
}

}  // namespace millrace::metrics::detail
