#include "fixture.h"

#include <ATen/ops/ones.h>

namespace millrace::standin {

at::Tensor pinned_ones(std::int64_t n) { return at::ones({n}, at::TensorOptions().pinned_memory(true)); }

}  // namespace millrace::standin
