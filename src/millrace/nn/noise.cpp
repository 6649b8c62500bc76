#include "millrace/nn/noise.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "millrace/base/philox.h"
#include "millrace/nn/sent.h"

namespace millrace::nn {

at::Tensor normal_rows(const RowKey& key, at::IntArrayRef row_shape, const at::TensorOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(key.positions.size())};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  const at::Device device = options.device();
  const at::Device drawn_on = c10::multiply_integers(row_shape) <= kMostDrawnOnHost ? at::kCPU : device;
  at::Tensor numbers = at::empty(shape, options.device(drawn_on));
  at::Generator generator = at::globalContext().defaultGenerator(drawn_on).clone();
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::int64_t position = key.positions[static_cast<std::size_t>(row)];
    generator.set_current_seed(make_key(key.seed, key.site, key.epoch, static_cast<std::uint64_t>(position)));
    numbers[row].normal_(0.0, 1.0, generator);
  }
  return drawn_on == device ? numbers : sent(numbers, device);
}

}  // namespace millrace::nn
