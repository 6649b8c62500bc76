// The generator of a stand-in device: a seed and an offset, as in CUDA; an operation's draws are a function of both.
#pragma once

#include <ATen/core/Generator.h>

namespace millrace::standin {

[[nodiscard]] const at::Generator& default_generator(int device);
[[nodiscard]] at::Generator new_generator(int device);
// A CPU generator for one operation; advances `generator`. In a recording it advances nothing, each replay draws instead, and any
// generator but the device's default one is refused.
[[nodiscard]] at::Generator draw(const at::Generator& generator);

}  // namespace millrace::standin
