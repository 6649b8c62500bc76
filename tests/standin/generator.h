// The generator of a stand-in device: a seed and an offset, as CUDA's; what an operation draws is a function of both.
#pragma once

#include <ATen/core/Generator.h>

namespace millrace::standin {

[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator new_generator(int device);
// A generator of the CPU for one operation; `generator` moves on.
[[nodiscard]] at::Generator draw(const at::Generator& generator);

}  // namespace millrace::standin
