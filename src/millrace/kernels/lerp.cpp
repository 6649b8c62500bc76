#include "millrace/kernels/lerp.h"

#include <cstddef>

#include "millrace/kernels/device_table.h"

namespace millrace::kernels {
namespace {

bool fits_kernel(const at::Tensor& average, const at::Tensor& value) {
  return average.scalar_type() == at::kFloat && value.scalar_type() == at::kFloat && average.device() == value.device() &&
         average.is_non_overlapping_and_dense() && average.strides() == value.strides();
}

}  // namespace

void lerp(at::TensorList averages, at::TensorList values, const at::Tensor& weight) {
  const DeviceTable* const table = device_table(weight.device().type());
  const at::Tensor narrow = weight.to(at::kFloat);
  detail::Lerp some{};
  some.weight = table == nullptr ? nullptr : narrow.const_data_ptr<float>();
  const auto launch = [&] {
    if (some.count > 0) table->lerp(some, weight.device().index());
    some.count = 0;
  };
  for (std::size_t i = 0; i < averages.size(); ++i) {
    const at::Tensor& average = averages[i];
    if (table == nullptr || !fits_kernel(average, values[i])) {
      average.lerp_(values[i], average.scalar_type() == at::kFloat ? narrow : weight.to(average.scalar_type()));
      continue;
    }
    if (average.numel() == 0) continue;
    some.pairs[static_cast<std::size_t>(some.count++)] = {
        .average = average.data_ptr<float>(), .value = values[i].const_data_ptr<float>(), .count = average.numel()};
    if (some.count == detail::Lerp::kMost) launch();
  }
  launch();
}

}  // namespace millrace::kernels
